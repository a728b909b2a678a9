"""Arguments that several commands share."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from rl_core.files import why_no_folder
from rl_core.wording import shortened

Target = Annotated[str, typer.Argument(metavar="CONFIG", help="A config file, or a run by its folder or name.")]
Changes = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Keys to change: actor.optim.lr=1e-6 rollout.n=4.")
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="The same as an option, for one key.")
]


def _folder_of_runs(path: str) -> str:
    """Raises ValueError for what neither is a folder nor can become one."""
    if (why := why_no_folder(Path(path))) is not None:
        raise ValueError(f"--runs-dir {shortened(path)}: {why}")
    return path


RunsDir = Annotated[str, typer.Option("--runs-dir", help="Where runs lie.", callback=_folder_of_runs)]


def all_overrides(changes: Iterable[str] | None, overrides: Iterable[str] | None) -> list[str]:
    """Every `key.path=value` of a command line; of two for one key that of `--set` wins, which comes last."""
    return [*(changes or ()), *(overrides or ())]


def without_changes(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of files and runs, and the `key.path=value` texts among them: an argument that may be left out, or be
    repeated, takes those that were meant for the next one."""
    changes = [name for name in names if "=" in name and not os.path.exists(name)]  # noqa: PTH110 - False for names no system takes
    return [name for name in names if name not in changes], changes
