"""`sightline import easyr1`: writes the equivalent of a configuration of EasyR1, and prints all differences."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from rl_core.config.loading import shown_override
from rl_core.files import atomic_write_text
from sightline_tools.easyr1.files import found_above
from sightline_tools.easyr1.importer import Imported, Note, import_easyr1
from sightline_tools.easyr1.script import training_words

_SCRIPT = ".sh"
_CONFIG = "config="
"""The word before the file on EasyR1's command line."""


def write_easyr1_import(arguments: Sequence[str], console: Console, *, out: Path, force: bool) -> None:
    """Write the equivalent of a configuration of EasyR1 and print all differences. Raises ConfigError where the
    configuration cannot be read, or has a value that EasyR1 itself would refuse. Raises ValueError where `out` exists
    already, or more than one file is named."""
    if out.exists() and not force:
        raise ValueError(f"{out} exists: choose another name with --out, or replace it with --force")
    path, overrides = _parts(arguments)
    imported = import_easyr1(path, overrides, out=out.parent)
    named = [] if path is None else [str(path)]
    atomic_write_text(out, imported.text(" ".join(["From EasyR1:", *named, *map(shown_override, overrides)])))
    _print(imported, console)
    next_command = shlex.join(["sightline", "plan", str(out)])
    console.print(f"\nwrote {out}. Next:\n  {next_command}", markup=False, highlight=False, soft_wrap=True)


def _parts(arguments: Sequence[str]) -> tuple[Path | None, list[str]]:
    """The config among the arguments, if there is one, and all other arguments. A script stands for the words of its
    training, which names the config from a folder above it."""
    scripts = [Path(one) for one in arguments if one.endswith(_SCRIPT) and Path(one).is_file()]
    if scripts:
        script, rest = scripts[0], [one for one in arguments if one != str(scripts[0])]
        path, changes = _parts(training_words(script))
        return path and (found_above(path, script.parent) or path), [*changes, *rest]
    files = [one for one in arguments if "=" not in one or Path(one).is_file()]
    named = [one for one in arguments if one.startswith(_CONFIG) and one not in files]
    paths = [*files, *(one.removeprefix(_CONFIG) for one in named)]
    if len(paths) > 1:
        raise ValueError(f"{' and '.join(paths)}: an import reads one file, and changes its keys with key.path=value")
    return Path(paths[0]) if paths else None, [one for one in arguments if one not in (*files, *named)]


def _print(imported: Imported, console: Console) -> None:
    _list("no equivalent", imported.lost, console)
    _list("differs", imported.differing, console)
    if imported.needless:
        names = ", ".join(note.key for note in imported.needless)
        console.print("[bold]not needed[/bold] (docs/migration.md says why)", highlight=False)
        console.print(f"  {names}", markup=False, highlight=False, soft_wrap=True)
    for key in imported.missing:
        console.print(Text.assemble(("to be set", "red"), " ", key), soft_wrap=True)


def _list(title: str, notes: Sequence[Note], console: Console) -> None:
    if notes:
        console.print(f"[bold]{title}[/bold]", highlight=False)
    for note in notes:
        console.print(f"  {note}", markup=False, highlight=False, soft_wrap=True)
