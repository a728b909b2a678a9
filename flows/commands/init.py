"""`sightline init`: writes a config for a user's data, and shows how the data was understood."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from flows.printing import command_line, print_line, print_trial_table
from rl_core.config.data import DataConfig
from rl_core.data.inspection import Inspection
from rl_core.rewards.forms import opens_thoughts
from rl_core.sources.columns import name_columns
from rl_core.sources.options import columns_named
from rl_core.sources.rows import BadRow
from rl_core.stop import Interrupted, StopRequest, stopped_by_signals
from rl_core.wording import shortened
from tasks.new_config.held_out import Split
from tasks.new_config.writing import (
    InitOptions,
    Proposal,
    TriedConfig,
    propose,
    roomy_length,
    try_config,
    write_config,
    write_rejected,
)

_FIRST_LIMIT = 1024
_NAMED_ROWS = 10
_FEW_ANSWERS = 12
_LONGEST_ANSWER = 30
_MAX_BAD_SHARE: float = DataConfig.model_fields["max_bad_share"].default


def init_config(data: str, options: InitOptions, console: Console, *, out: Path, force: bool) -> int:
    """Write a config for `data` and show the prompts and rewards of its first rows. Returns the exit code: 0, 130 after
    Ctrl-C and 143 after SIGTERM. Raises ValueError where the config exists already, or the data cannot be used."""
    if out.exists() and not force:
        raise ValueError(f"{out} exists: choose another name with --out, or replace it with --force")
    stop = StopRequest()
    try:
        with stopped_by_signals(stop), stop.breaking_off():
            _init(data, options, console, out=out)
    except Interrupted as stopped:
        print_line(console, f"{out} is not finished; the same command writes it", label="[yellow]stopped[/yellow]")
        return stopped.exit_code
    return 0


def _init(data: str, options: InitOptions, console: Console, *, out: Path) -> None:
    folder = out.with_suffix(".data")
    proposal = propose(data, options, folder=folder)
    _print_found(proposal, console)
    _print_split(proposal.split, console)
    _print_unusable(proposal, console, listed_in=write_rejected(proposal, folder))
    trial = try_config(write_config(proposal, out, max_prompt_length=_FIRST_LIMIT))
    write_config(proposal, out, max_prompt_length=roomy_length(trial.lengths.longest))
    _print_trial(trial, proposal, console)
    plan, run = (command_line(["sightline", command, out]) for command in ("plan", "run"))
    print_line(console, f"\nwrote {out}. Next:\n  {plan}\n  {run}")


def _print_found(proposal: Proposal, console: Console) -> None:
    found = proposal.inspection
    print_line(console, f"{found.row_count} rows of {found.kind}; {proposal.split.origin}")
    if proposal.model is None:
        print_line(
            console, "no --model: a tiny random one, which a cold start on the training rows teaches to write answers"
        )
    print_columns(found, console)
    if found.columns:
        answers = "--answer-key, --answer-pattern, --options-key, --class-names"
        print_line(console, f"otherwise: --prompt-key, {answers}, --image-key, --video-key, --media-dir")


def print_columns(found: Inspection, console: Console) -> None:
    """Print how the columns of some data were understood."""
    columns = found.source.columns
    if found.columns:
        are_in_turns = found.has_media and columns.image_key is None and columns.video_key is None
        pictured = " and ".join(map(repr, columns_named(columns.image_key))) or None
        media = f"images {pictured}, videos {columns.video_key!r}"
        media = "images and videos in its turns" if are_in_turns else media
        read = f"question {columns.prompt_key!r}, {media}, answer {columns.answer_key!r}"
        if chosen := columns_named(columns.options_key):
            read += f", options {' and '.join(map(repr, chosen))}"
        print_line(console, f"columns: {read} (of {name_columns(found.columns)})")
    for unused in found.unused:
        print_line(console, unused, label="[yellow]not used:[/yellow]")
    for doubt in found.doubts:
        print_line(console, doubt, label="[yellow]guess[/yellow]")


def _print_split(split: Split, console: Console) -> None:
    usable = sum(counts.total() for counts in split.answers.values())
    if 0 < split.text_rows < usable:
        print_line(console, f"{split.text_rows} of {usable} rows have no image or video")
    values = sorted(set().union(*split.answers.values()))
    if 0 < len(values) <= _FEW_ANSWERS:
        for name, counts in split.answers.items():
            shares = ", ".join(f"{shortened(value, _LONGEST_ANSWER)} {counts[value]}" for value in values)
            print_line(console, f"{name}: {shares}", label="[bold]answers[/bold]")


def _print_unusable(proposal: Proposal, console: Console, *, listed_in: Path | None) -> None:
    if listed_in is None:
        return
    for unusable in proposal.split.unusable:
        _name_rows(unusable.data, unusable.rows, console)
        if unusable.is_read_again and len(unusable.rows) > _MAX_BAD_SHARE * unusable.total:
            allowed = f"data.max_bad_share {_MAX_BAD_SHARE:g} allows"
            print_line(console, f"  of {unusable.total}, more than {allowed}: correct them or raise it")
    print_line(console, f"{listed_in} lists all of them")


def _name_rows(data: str, rows: Sequence[BadRow], console: Console) -> None:
    if not rows:
        return
    print_line(console, f"{len(rows)} row(s) of {data} cannot be used:", label="[red]unusable[/red]")
    for row in rows[:_NAMED_ROWS]:
        print_line(console, f"  {row}")
    if len(rows) > _NAMED_ROWS:
        print_line(console, f"  and {len(rows) - _NAMED_ROWS} more")


def _print_trial(trial: TriedConfig, proposal: Proposal, console: Console) -> None:
    first, lengths = trial.prompts[0], trial.lengths
    for split, rows in trial.rejected.items():
        _name_rows(f"the first rows for {split}", rows, console)
    console.print("\n[bold]the first prompt[/bold]")
    print_line(console, first.text, style="cyan")
    print_line(console, f"answer: {first.answer_text}")
    if opens_thoughts(first.text):
        counted = "responses begin inside the thoughts, and the built-in rewards count this <think> as theirs"
        print_line(console, f"the chat template ends the prompt with <think>: {counted}", label="[yellow]look[/yellow]")
    spread = f"{lengths.shortest} to {lengths.longest} tokens, mean {lengths.mean:.0f}"
    print_line(console, spread, label="\n[bold]prompt lengths[/bold]")
    print_line(console, f"{proposal.reward}, tried on responses to the first rows:", label="\n[bold]reward[/bold]")
    print_trial_table(trial.reward.table, console)
    for problem in (*trial.reward.problems, *trial.reward.warnings):
        print_line(console, problem, label="[yellow]look[/yellow]")
