"""docs/migration.md, written from the table of EasyR1's keys, so that page and importer cannot disagree.

python -m sightline_tools.easyr1.page docs/migration.md
"""

import json
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from sightline_tools.easyr1.importer import ALWAYS
from sightline_tools.easyr1.key import Key
from sightline_tools.easyr1.keys_data import ALGORITHM, DATA
from sightline_tools.easyr1.keys_trainer import TRAINER
from sightline_tools.easyr1.keys_worker import WORKER

INTRODUCTION = """# From EasyR1

`sightline import easyr1` writes a config for Sightline from a config of EasyR1, or from a script that starts a training
(`examples/X.sh`), and prints what differs.

```
sightline import easyr1 examples/config.yaml worker.actor.model.model_path=Qwen/Qwen2.5-VL-3B-Instruct \\
  data.train_files=hiyouga/geometry3k@train data.val_files=hiyouga/geometry3k@test --out geometry3k.yaml
sightline plan geometry3k.yaml
```

Give it the arguments that you gave to `python3 -m verl.trainer.main`: the file (or `config=FILE`) and what follows it.
The new config also has the keys that you left at EasyR1's defaults. Templates and the reward file are used from where
they are. Every setting without an equivalent, and every setting that works differently, is printed and written as a
comment at the beginning of the config.

Batch sizes and lengths mean the same as in EasyR1, and a reward file runs unchanged ([rewards](rewards.md)).
Checkpoints of EasyR1 are not read: merge them with EasyR1's script, and name the folder as `model.source.path`.

In the tables, "not needed" marks a key that Sightline does not need, and "**none**" something that it cannot do. The
text after a † is printed if it applies to your value.

These keys, which EasyR1 does not have, are set to do as EasyR1 does: {always}.
"""

SECTIONS = {"data": DATA, "algorithm": ALGORITHM, "worker": WORKER, "trainer": TRAINER}


def migration_page() -> str:
    """The whole page, Markdown."""
    always = ", ".join(f"`{name}: {json.dumps(value)}`" for name, value in ALWAYS.items())
    return "\n".join([INTRODUCTION.format(always=always), *(_chapter(name, keys) for name, keys in SECTIONS.items())])


def _chapter(name: str, keys: Iterable[Key]) -> str:
    header = ["| EasyR1 | Sightline | remark |", "|---|---|---|"]
    rows = [_row(list(alike), *cells) for cells, alike in groupby(keys, lambda key: (_equivalent(key), _remark(key)))]
    return "\n".join([f"## `{name}`", "", *header, *rows, ""])


def _row(keys: Sequence[Key], equivalent: str, remark: str) -> str:
    cells = [", ".join(f"`{key.name}`" for key in keys), equivalent, remark]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _remark(key: Key) -> str:
    return " ".join(filter(None, [key.remark, *(f"† {difference.text}" for difference in key.differs)]))


def _equivalent(key: Key) -> str:
    if key.to:
        return ", ".join(f"`{name}`" for name in key.to)
    return "not needed" if key.harmless is None else "**none**"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(migration_page(), encoding="utf-8")
