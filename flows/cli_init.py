"""`sightline init`: from a user's data to a config, and what was understood."""

from pathlib import Path

from rich.console import Console

from rl_core.data.rows import BadRow
from tasks.new_config import Proposal, Trial, propose, roomy_length, try_config, write_config

_FIRST_LIMIT = 1024


def init_config(
    data: Path, console: Console, *, validation: Path | None, model: str | None, out: Path, force: bool
) -> None:
    """Write a config for `data` and show what it makes of the first rows.

    Raises:
        ValueError: the config exists already, or the data cannot be used.
    """
    if out.exists() and not force:
        raise ValueError(f"{out} exists: choose another name with --out, or replace it with --force")
    proposal = propose(data, validation=validation, model=model, folder=out.with_suffix(".data"))
    _say_what_was_found(proposal, console)
    trial = try_config(write_config(proposal, out, max_prompt_length=_FIRST_LIMIT))
    write_config(proposal, out, max_prompt_length=roomy_length(trial.lengths.longest))
    _say_what_comes_of_it(trial, proposal, console)
    console.print(f"\nwrote [bold]{out}[/bold]. Next:\n  sightline plan {out}\n  sightline run {out}", highlight=False)


def _say_what_was_found(proposal: Proposal, console: Console) -> None:
    found = proposal.inspection
    columns = found.source.columns
    console.print(f"{found.row_count} rows of {found.kind}; {proposal.split.origin}", highlight=False, markup=False)
    if found.columns:
        read = f"question {columns.prompt_key!r}, images {columns.image_key!r}, answer {columns.answer_key!r}"
        console.print(f"columns: {read} (of {', '.join(found.columns)})", highlight=False, markup=False)
    for doubt in found.doubts:
        console.print(f"[yellow]guess[/yellow] {doubt}", highlight=False)
    for row in found.rows:
        if isinstance(row, BadRow):
            console.print(f"[red]unreadable[/red] {row}", highlight=False)


def _say_what_comes_of_it(trial: Trial, proposal: Proposal, console: Console) -> None:
    first, lengths = trial.prompts[0], trial.lengths
    console.print("\n[bold]the first prompt[/bold]")
    console.print(first.text, markup=False, highlight=False, style="cyan", soft_wrap=True)
    console.print(f"answer: {first.answer_text}", markup=False, highlight=False)
    console.print(
        f"\n[bold]prompt lengths[/bold] {lengths.shortest} to {lengths.longest} tokens, mean {lengths.mean:.0f}",
        highlight=False,
    )
    scores = ", ".join(f"{score:g}" for score in trial.scores)
    console.print(
        f"[bold]reward[/bold] {proposal.reward} on the first true answers: {scores or 'none'}", highlight=False
    )
    for problem in trial.reward_problems:
        console.print("[yellow]look[/yellow] ", end="")
        console.print(problem, markup=False, highlight=False, soft_wrap=True)
