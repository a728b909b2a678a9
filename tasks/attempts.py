"""The note in a run's folder that tells which flow run wrote it last, and how that ended. Imports no Prefect, so that
looking at runs is quick."""

from typing import Any
from uuid import UUID

from rl_core.files import atomic_write_json, read_json
from rl_core.run_directory import RunDirectory

_FILE = "flow-run.json"


def remember(run: RunDirectory, flow_run_id: str, *, end: str | None = None, cause: str | None = None) -> None:
    """Note which flow run writes this run; once it ended, how ("completed", "interrupted" or "failed") and why."""
    atomic_write_json(run.root / _FILE, {"flow_run": flow_run_id, "end": end, "cause": cause})


def note_that_prefect_knows(run: RunDirectory, flow_run_id: str) -> None:
    """Note that Prefect's server has the final state of this flow run, so that nobody need ask it; unless another one
    wrote the run since. Only for the holder of the run's lock."""
    last = noted(run)
    if last.get("flow_run") == flow_run_id:
        atomic_write_json(run.root / _FILE, last | {"prefect_knows": True})


def prefect_may_not_know(run: RunDirectory) -> bool:
    """Whether the flow run that wrote this run last may say Running for ever. Raises ValueError as `noted` does."""
    last = noted(run)
    return bool(last) and not last.get("prefect_knows", False)


def noted(run: RunDirectory) -> dict[str, Any]:
    """What was noted last: `flow_run`, `end`, `cause`, and `prefect_knows` where it does; empty when no flow run ever
    wrote this run.

    Raises:
        ValueError: what is there is no such note.
    """
    path = run.root / _FILE
    try:
        note = dict(read_json(path))
        UUID(note["flow_run"])
        return {"end": None, "cause": None} | note
    except FileNotFoundError:
        return {}
    except (OSError, TypeError, KeyError, AttributeError, ValueError):
        raise ValueError(f"{path} is no note of a flow run") from None
