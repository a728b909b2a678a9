"""The flow that removes runs by a rule: `sightline clean` for a schedule, with its tables on a page."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from prefect import State, flow
from prefect.states import Completed, Failed
from pydantic import Field
from rich.filesize import decimal

from flows.reproducing import needed_runs
from rl_core.redaction import redact
from rl_core.run_directory import RUNS_DIR
from tasks.housekeeping.removal import Choice, Cleaning, carry_out_cleaning, plan_cleaning, rule_of
from tasks.pages.artifacts import show_page
from tasks.results.report_page import markdown_table

Age = Annotated[str, Field(pattern=r"^(\d{1,6}[hdw])?$")]


@flow(name="clean")
def clean(
    older_than: Age = "",
    failed: bool = False,
    superseded: bool = False,
    earlier: bool = False,
    remove: bool = False,
    runs_dir: str = RUNS_DIR,
) -> dict[str, Any] | State[Any]:
    """Remove runs by a rule, or show which ones it would remove.

    Args:
        older_than: Only runs that have not changed for this long, such as 12h, 30d or 8w.
        failed: Runs whose last attempt failed or was killed.
        superseded: Finished runs whose config has a later run that finished too.
        earlier: Of these runs, or of all, remove only the stages that were made again.
        remove: Remove these runs; otherwise they are only shown.
        runs_dir: Folder of the runs.

    Returns:
        The names of the runs that were (or would be) removed, of the runs that were kept with the reasons, and the
        bytes.
    """
    rule = rule_of(older_than=older_than, failed=failed, superseded=superseded, earlier=earlier)
    planned = plan_cleaning(Path(runs_dir), rule, datetime.now(UTC), in_use=needed_runs(runs_dir))
    found = carry_out_cleaning(planned, Path(runs_dir)) if remove else planned
    verb = "removed" if remove else "would be removed"
    title = (
        f"{len(found.removed)} {'folders of earlier stages' if earlier else 'runs'} {verb}, {decimal(found.num_bytes)}"
    )
    page = redact(markdown(title, found))
    show_page("cleaning", page, about=title)
    figures = {
        "removed" if remove else "removable": [choice.name for choice in found.removed],
        "kept": {choice.name: choice.kept for choice in found.kept},
        "bytes": found.num_bytes,
    }
    if len(found.removed) < len(planned.removed):
        return Failed(message=f"{title}; the page names the runs that could not be removed", data=figures)
    return Completed(message=title, data=figures)


def markdown(title: str, found: Cleaning) -> str:
    """The tables as a Markdown page."""
    chosen = _table("Chosen by the rule", found.removed)
    return f"# {title}\n{chosen}{_table('Chosen by the rule, and kept', found.kept)}"


def _table(title: str, choices: Sequence[Choice]) -> str:
    if not choices:
        return ""
    rows = [[f"`{one.name}`", _cell(one.why), _cell(one.kept or "")] for one in choices]
    return f"\n## {title}\n\n{markdown_table(('run', 'chosen because', 'kept because'), rows)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
