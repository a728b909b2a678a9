"""`sightline show`: the rollouts of a step, also while the run trains."""

import re
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rl_core.data.images import ImageStore
from rl_core.data.prepared import IMAGES_FILE
from rl_core.files import atomic_write_bytes
from rl_core.run_directory import RunDirectory
from rl_core.tracking.rollout_files import RolloutRecord, read_rollouts

_PNG = b"\x89PNG"
_ROLLOUT_FILE = re.compile(r"step-(\d+)\.parquet")


def print_rollouts(run: RunDirectory, console: Console, *, step: int | None, prompts: int) -> None:
    """Show the first prompts of a step with their responses; the newest step when none is named.

    Raises:
        ValueError: the run has no such step.
    """
    shown = newest_step(run) if step is None else step
    path = run.rollouts(shown)
    if not path.is_file():
        raise ValueError(f"{run.name} has no rollouts of step {shown}; its newest step is {newest_step(run)}")
    records = read_rollouts(path)
    console.print(f"[bold]{run.name}[/bold], step {shown}: {len(records)} rollouts", highlight=False)
    groups = [list(group) for _, group in groupby(records, key=lambda record: record.prompt_uid)]
    own_version = max(record.policy_version for record in records)
    for group in groups[:prompts]:
        _print_group(group, run, console, own_version=own_version)
    if len(groups) > prompts:
        console.print(f"[dim]{len(groups) - prompts} more prompts: --prompts {len(groups)}[/dim]", highlight=False)


def newest_step(run: RunDirectory) -> int:
    """The last step with rollouts. Raises ValueError when there is none yet."""
    names = (_ROLLOUT_FILE.fullmatch(path.name) for path in run.rollouts(0).parent.glob("step-*.parquet"))
    steps = [int(match[1]) for match in names if match]
    if not steps:
        raise ValueError(f"{run.name} has no rollouts yet")
    return max(steps)


def _print_group(group: list[RolloutRecord], run: RunDirectory, console: Console, *, own_version: int) -> None:
    first = group[0]
    console.print()
    console.print(Text(first.prompt.strip(), style="cyan"), soft_wrap=True)
    for path in image_files(run, first.image_uids):
        console.print(f"image   {path}", markup=False, highlight=False, soft_wrap=True)
    console.print(Text(f"answer  {first.answer}"), soft_wrap=True)
    if first.policy_version < own_version:
        console.print(f"kept    from the step before (policy version {first.policy_version})", highlight=False)
    table = Table()
    for column, justify in (("#", "right"), ("response", "left"), ("reward", "right"), ("advantage", "right")):
        table.add_column(column, justify="right" if justify == "right" else "left")
    table.add_column("parts", style="dim")
    for record in group:
        table.add_row(*map(Text, _cells(record)))  # markup's own escape loses a backslash before a bracket
    console.print(table)


def _cells(record: RolloutRecord) -> tuple[str, str, str, str, str]:
    """What a model or a reward says may look like markup, LaTeX above all: plain text, never markup."""
    parts = {name: value for name, value in record.components.items() if name != "overall"}
    response = record.response + ("" if record.finish_reason == "stop" else " …(cut)")
    return (
        f"{record.sample_index}",
        response,
        record.error or f"{record.components['overall']:.3f}",
        "not trained on" if record.advantage is None else f"{record.advantage:+.3f}",
        ", ".join(f"{name} {value:g}" for name, value in parts.items()),
    )


def image_files(run: RunDirectory, uids: list[str]) -> list[Path]:
    """The images as files that a viewer opens, written out of the image store when first asked for."""
    images = ImageStore.open(run.data / IMAGES_FILE)
    paths = []
    for uid in uids:
        encoded = images.encoded(uid)
        path = run.root / "images" / (uid + (".png" if encoded.startswith(_PNG) else ".jpg"))
        if not path.is_file():
            atomic_write_bytes(path, encoded)
        paths.append(path)
    return paths
