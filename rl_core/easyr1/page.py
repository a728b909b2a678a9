"""docs/migration.md, written from the table of EasyR1's keys, so that page and importer cannot disagree.

python -m rl_core.easyr1.page docs/migration.md
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from rl_core.easyr1.key import Key
from rl_core.easyr1.keys_data import ALGORITHM, DATA
from rl_core.easyr1.keys_trainer import TRAINER
from rl_core.easyr1.keys_worker import WORKER
from rl_core.easyr1.table import ALWAYS

INTRODUCTION = """# From EasyR1

```
sightline import easyr1 examples/config.yaml worker.actor.model.model_path=Qwen/Qwen2.5-VL-3B-Instruct \\
  data.train_files=hiyouga/geometry3k@train data.val_files=hiyouga/geometry3k@test --out geometry3k.yaml
sightline plan geometry3k.yaml
```

The file, or `config=FILE`, and what follows it are what you gave to `python3 -m verl.trainer.main`. The config that
comes out names every key that EasyR1 decides, also those that you left at its defaults, because Sightline's are others.
Prompt template, chat template and reward file are used where they lie: they are looked for from the working directory,
then from the folder of the YAML file upwards. What has no equivalent, and what is not done as there, is printed, and
stands as comments at the head of the config. The import stops at a value that EasyR1 would not take (`lr: 1e-6x`, an
unknown estimator) and at a template, reward file or folder that is not there, where EasyR1 goes on without it.

`rollout_batch_size`, `global_batch_size` (prompts an optimizer step), `n`, `micro_batch_size_per_device_for_*`,
`max_prompt_length` and `max_response_length` mean what they mean there. A reward file runs unchanged
([rewards](rewards.md)). Checkpoints of EasyR1 are not read: merge them with its own script and name the folder as
`model.source.path`.

"needs none" below is a key that Sightline has no use for; "**none**" is something that it cannot do, and the import
says so where your value asks for it. What stands after a † is printed too, where your value meets it. The defaults are
those of EasyR1's dataclasses (snapshot of 2026-07-30); its `examples/config.yaml` sets some of them otherwise.

What EasyR1 does without a key for it is set as well: {always}.
"""

SECTIONS = {"data": DATA, "algorithm": ALGORITHM, "worker": WORKER, "trainer": TRAINER}


def migration_page() -> str:
    """The whole page, Markdown."""
    always = ", ".join(f"`{name}: {json.dumps(value)}`" for name, value in ALWAYS.items())
    return "\n".join([INTRODUCTION.format(always=always), *(_chapter(name, keys) for name, keys in SECTIONS.items())])


def _chapter(name: str, keys: Iterable[Key]) -> str:
    header = ["| EasyR1 | its default | Sightline | remark |", "|---|---|---|---|"]
    return "\n".join([f"## `{name}`", "", *header, *map(_row, keys), ""])


def _row(key: Key) -> str:
    remark = " ".join(filter(None, [key.remark, *(f"† {difference.text}" for difference in key.differs)]))
    cells = [f"`{key.name}`", f"`{json.dumps(key.default)}`", _equivalent(key), remark]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _equivalent(key: Key) -> str:
    if key.to:
        return ", ".join(f"`{name}`" for name in key.to)
    return "needs none" if key.harmless is None else "**none**"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(migration_page(), encoding="utf-8")
