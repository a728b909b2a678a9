"""docs/migration.md, written from the table of EasyR1's keys, so that page and importer cannot disagree.

python -m sightline_tools.easyr1.page docs/migration.md
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from sightline_tools.easyr1.key import Key
from sightline_tools.easyr1.keys_data import ALGORITHM, DATA
from sightline_tools.easyr1.keys_trainer import TRAINER
from sightline_tools.easyr1.keys_worker import WORKER
from sightline_tools.easyr1.table import ALWAYS

INTRODUCTION = """# From EasyR1

```
sightline import easyr1 examples/config.yaml worker.actor.model.model_path=Qwen/Qwen2.5-VL-3B-Instruct \\
  data.train_files=hiyouga/geometry3k@train data.val_files=hiyouga/geometry3k@test --out geometry3k.yaml
sightline plan geometry3k.yaml
```

Give the command the arguments that you gave to `python3 -m verl.trainer.main`: the file (or `config=FILE`) and what
follows it. The new config has every key for which EasyR1 has one, including keys that you left at EasyR1's defaults,
because Sightline's defaults differ. Prompt template, chat template and reward file are used from where they are: they
are searched for from the working directory, then from the folder of the YAML file upwards. Every setting without an
equivalent, and every setting that works differently, is printed and written as a comment at the beginning of the
config. The import stops at a value that EasyR1 would refuse (`lr: 1e-6x`, an unknown estimator), and at a template,
reward file or folder that does not exist, without which EasyR1 would continue.

`rollout_batch_size`, `global_batch_size` (prompts of an optimizer step), `n`, `micro_batch_size_per_device_for_*`,
`max_prompt_length` and `max_response_length` mean the same as in EasyR1. A reward file runs unchanged
([rewards](rewards.md)). Checkpoints of EasyR1 are not read: merge them with EasyR1's script, and name the folder as
`model.source.path`.

In the tables, "needs none" marks a key that Sightline does not need, and "**none**" something that it cannot do; the
import says so if your value asks for it. The text after a † is printed too, if it applies to your value. The defaults
are from EasyR1's dataclasses (snapshot of 2026-07-30); its `examples/config.yaml` sets some of them differently.

Some things that EasyR1 does without having a key for them are set as well: {always}.
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
