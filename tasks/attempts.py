"""The note in a run's folder that says which flow run wrote the run last, and how it ended. Imports no Prefect, so that
listing runs is quick."""

from typing import Any
from uuid import UUID

from rl_core.files import atomic_write_json, read_json
from rl_core.run_directory import RunDirectory

_FILE = "flow-run.json"


def remember(run: RunDirectory, flow_run_id: str, *, end: str | None = None, cause: str | None = None) -> None:
    """Note which flow run writes this run and, once it has ended, how ("completed", "interrupted", "cancelled" or
    "failed") and why."""
    atomic_write_json(run.root / _FILE, {"flow_run": flow_run_id, "end": end, "cause": cause})


def how_it_ended(run: RunDirectory) -> str:
    """How the last flow run that wrote this run ended, in words."""
    try:
        note = noted(run)
    except ValueError as damaged:
        return f"{damaged}"
    match note.get("end"):
        case None:
            return "its process was killed" if note else "the run is new here"
        case "failed":
            return f"it failed: {note['cause']}"
        case "completed":
            return "it was completed, and called again"
        case end:
            return f"it was {end}"


def noted(run: RunDirectory) -> dict[str, Any]:
    """Read the note: `flow_run`, `end` and `cause`; empty when no flow run ever wrote this run. Raises ValueError where
    the note is damaged."""
    path = run.root / _FILE
    try:
        note = dict(read_json(path))
        UUID(note["flow_run"])
        return {"end": None, "cause": None} | note
    except FileNotFoundError:
        return {}
    except (OSError, TypeError, KeyError, AttributeError, ValueError):
        raise ValueError(f"{path} is not the note of a flow run") from None
