"""Arguments that several commands share."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

Target = Annotated[str, typer.Argument(metavar="CONFIG", help="A config file, or a run by its folder or name.")]
Changes = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Keys to change: actor.optim.lr=1e-6 rollout.n=4.")
]
Out = Annotated[Path, typer.Option(help="The config to write.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing config.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one key, as KEY=VALUE does.")
]


def _no_file(path: str) -> str:
    """Refuse a file before Prefect is started for the run."""
    if Path(path).is_file():
        raise typer.BadParameter(f"{path} is a file; name a folder, which is made if it is not there")
    return path


RunsDir = Annotated[str, typer.Option("--runs-dir", help="Folder of the runs.", callback=_no_file)]


def all_overrides(changes: Iterable[str] | None, overrides: Iterable[str] | None) -> list[str]:
    """Every `key.path=value` of a command line; those of `--set` come last, so that they win."""
    return [*(changes or ()), *(overrides or ())]


def without_changes(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of files and runs, separated from `key.path=value` texts among them: an argument that may be left out or
    repeated also takes texts that are meant for the next argument."""
    changes = [name for name in names if "=" in name and not os.path.exists(name)]  # noqa: PTH110 - False for names no system takes
    return [name for name in names if name not in changes], changes
