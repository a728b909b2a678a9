"""`sightline import`: configurations of other tools."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from rl_core.config.easyr1.importer import Imported, Note, import_easyr1
from rl_core.config.loading import shown_override
from rl_core.files import atomic_write_text


def write_easyr1_import(path: Path, overrides: Sequence[str], console: Console, *, out: Path, force: bool) -> None:
    """Write the equivalent of a configuration of EasyR1 and say what has none.

    Raises:
        ConfigError: the configuration cannot be read.
        ValueError: `out` exists already.
    """
    if out.exists() and not force:
        raise ValueError(f"{out} exists: choose another name with --out, or replace it with --force")
    imported = import_easyr1(path, overrides)
    atomic_write_text(out, imported.text(" ".join(["From EasyR1:", str(path), *map(shown_override, overrides)])))
    _say(imported, console)
    console.print(f"\nwrote [bold]{out}[/bold]. Next:\n  sightline plan {out}", highlight=False)


def _say(imported: Imported, console: Console) -> None:
    _list("no equivalent", imported.lost, console)
    _list("not needed", imported.needless, console)
    for key in imported.missing:
        console.print(f"[red]to be set[/red] {key}", highlight=False)


def _list(title: str, notes: Sequence[Note], console: Console) -> None:
    if notes:
        console.print(f"[bold]{title}[/bold]", highlight=False)
    for note in notes:
        console.print(f"  {note}", markup=False, highlight=False, soft_wrap=True)
