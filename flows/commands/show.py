"""`sightline show`: the rollouts of a step or the responses of a validation, also while the run trains."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from flows.printing import table_of
from rl_core.data.images import ImageStore
from rl_core.data.prepared import IMAGES_FILE
from rl_core.evaluation.items import EvaluationItem, read_items
from rl_core.evaluation.result import item_shares
from rl_core.files import atomic_write_bytes
from rl_core.records.metrics_log import step_files
from rl_core.records.rollout_files import RolloutRecord, read_rollouts
from rl_core.rewards.components import OVERALL
from rl_core.run_directory import RunDirectory

_COLOURS = {"right": "green", "wrong": "red", "not scored": "yellow"}
_PNG = b"\x89PNG"


def print_rollouts(run: RunDirectory, console: Console, *, step: int | None, prompts: int) -> None:
    """Print the first prompts of a step with their responses; by default of the newest step. Raises ValueError where
    the run has no such step."""
    shown = newest_step(run) if step is None else step
    path = run.rollouts(shown)
    if not path.is_file():
        raise ValueError(f"{run.name} has no rollouts of step {shown}; its newest step is {newest_step(run)}")
    records = read_rollouts(path)
    console.print(f"[bold]{escape(run.name)}[/bold], step {shown}: {len(records)} rollouts", highlight=False)
    groups = [list(group) for _, group in groupby(records, key=lambda record: record.prompt_uid)]
    own_version = max(record.policy_version for record in records)
    for group in groups[:prompts]:
        _print_group(group, run, console, own_version=own_version)
    _print_rest(len(groups) - prompts, len(groups), console)


def newest_step(run: RunDirectory) -> int:
    """The last step with rollouts. Raises ValueError when there is none yet."""
    files = step_files(run.rollouts(0).parent)
    if not files:
        raise ValueError(f"{run.name} has no rollouts yet")
    return files[-1][0]


def print_validation(run: RunDirectory, console: Console, *, step: int | None, prompts: int) -> None:
    """Print how many held-out prompts were answered rightly after a step, and the responses to the first prompts; by
    default of the newest validation. Raises ValueError where the run has no validation after this step, or none at all.
    """
    answered = [number for number, _ in step_files(run.validation(0).parent)]
    if not answered:
        raise ValueError(f"{run.name} has no validation yet; trainer.val_freq says how often there is one")
    shown = answered[-1] if step is None else step
    if shown not in answered:
        raise ValueError(f"{run.name} has no validation after step {shown}, but after {', '.join(map(str, answered))}")
    items = read_items(run.validation(shown))
    earlier = [number for number in answered if number < shown]
    since = f"; since step {earlier[-1]}: {_changes(read_items(run.validation(earlier[-1])), items)}" if earlier else ""
    headline = f"[bold]{run.name}[/bold], validation after step {shown}: {_right(items)}{since}"
    console.print(headline, highlight=False, soft_wrap=True)
    groups = [list(group) for _, group in groupby(items, key=lambda item: item.uid)]
    for group in groups[:prompts]:
        _print_answers(group, run, console)
    _print_rest(len(groups) - prompts, len(groups), console)


def _right(items: Sequence[EvaluationItem]) -> str:
    grades = [item.is_right for item in items if item.is_right is not None]
    left_out = f", {len(items) - len(grades)} are not scored" if len(grades) < len(items) else ""
    return f"{sum(grades)} of {len(grades)} answers are right ({fmean(grades):.1%}){left_out}"


def _changes(before: Sequence[EvaluationItem], after: Sequence[EvaluationItem]) -> str:
    old, new = item_shares(before), item_shares(after)
    pairs = [(old[uid], new[uid]) for uid in new.keys() & old.keys()]
    changes = [later - sooner for sooner, later in pairs if sooner is not None and later is not None]
    return f"{sum(change > 0 for change in changes)} better, {sum(change < 0 for change in changes)} worse"


def _print_answers(group: Sequence[EvaluationItem], run: RunDirectory, console: Console) -> None:
    first = group[0]
    _print_prompt(first.prompt, first.image_uids, first.answer, run, console)
    table = table_of("response", "read as", "reward", "grade", "parts", right=["reward"], dim="parts")
    for item in group:
        grade = Text(item.grade, style=_COLOURS[item.grade])
        cells = (
            _conversation(item, run),
            item.parsed or "",
            _reward(item.components, item.error),
        )
        table.add_row(*map(Text, cells), grade, Text(_parts(item.components)))
    console.print(table)


def _print_rest(left: int, total: int, console: Console) -> None:
    if left > 0:
        console.print(f"[dim]{left} more prompts: --prompts {total}[/dim]", highlight=False)


def _print_group(group: list[RolloutRecord], run: RunDirectory, console: Console, *, own_version: int) -> None:
    first = group[0]
    _print_prompt(first.prompt, first.image_uids, first.answer, run, console)
    if first.policy_version < own_version:
        console.print(f"kept    from the step before (policy version {first.policy_version})", highlight=False)
    right = ("#", "reward", "advantage")
    table = table_of("#", "response", "reward", "advantage", "parts", right=right, dim="parts")
    for record in group:
        cells = (
            f"{record.sample_index}",
            _conversation(record, run, record.environment),
            _reward(record.components, record.error),
            "not trained on" if record.advantage is None else f"{record.advantage:+.3f}",
            _parts(record.components),
        )
        table.add_row(*map(Text, cells))  # plain text, since responses may look like markup (LaTeX for example)
    console.print(table)


def _print_prompt(prompt: str, image_uids: Sequence[str], answer: str, run: RunDirectory, console: Console) -> None:
    console.print()
    console.print(Text(prompt.strip(), style="cyan"), soft_wrap=True)
    for path in _image_files(run, image_uids):
        console.print(f"image   {path}", markup=False, highlight=False, soft_wrap=True)
    console.print(Text(f"answer  {answer}"), soft_wrap=True)


def _conversation(
    record: RolloutRecord | EvaluationItem, run: RunDirectory, environment: Mapping[str, float] | None = None
) -> str:
    """What the model has said, below each turn with calls their results and the paths of their images, and at the end
    the numbers of the environment."""
    lines = []
    for turn in record.turns[:-1]:
        lines += [turn["content"]] if "content" in turn else [f"-> {call['result']}" for call in turn["calls"]]
        lines += [f"-> image {path}" for path in _image_files(run, turn.get("image_uids", ()))]
    cut = " …(cut)" if record.finish_reason == "length" else ""
    numbers = [f"=> {_parts(environment)}"] if environment else []
    return "\n".join([*lines, record.response + cut, *numbers])


def _reward(components: Mapping[str, float], error: str | None) -> str:
    return error or f"{components[OVERALL]:.3f}"


def _parts(components: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in components.items() if name != OVERALL)


def _image_files(run: RunDirectory, uids: Sequence[str]) -> list[Path]:
    """Paths of the images as files that a viewer can open; a file is written when it is first needed."""
    images = ImageStore(run.data / IMAGES_FILE)
    paths = []
    for uid in uids:
        encoded = images.encoded(uid)
        path = run.root / "images" / (uid + (".png" if encoded.startswith(_PNG) else ".jpg"))
        if not path.is_file():
            atomic_write_bytes(path, encoded)
        paths.append(path)
    return paths
