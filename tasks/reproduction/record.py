"""How a set of baselines is kept and shown: a page and its figures in the set's folder, and both in MLflow."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_core.files import atomic_write_json, atomic_write_text
from rl_core.redaction import redact
from rl_core.tracking.mlflow_address import mlflow_address
from tasks.reproduction.baseline_set import Member, judge_set
from tasks.reproduction.page import headline, render_reproduction, reproduction_page
from tasks.reproduction.verdict import Verdict
from tasks.results.report_page import percent, points

if TYPE_CHECKING:
    from rl_core.tracking.mlflow_runs import MlflowRun

EXPERIMENT = "reproductions"
"""MLflow experiment of the sets, whatever experiments their runs belong to."""

FIGURES = "summary.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Conclusion:
    """A judged set: its name, its members' verdicts, and where its page is."""

    name: str
    verdicts: Sequence[Verdict]
    page: Path

    @property
    def alarms(self) -> list[Verdict]:
        """What somebody should look at."""
        return [verdict for verdict in self.verdicts if verdict.is_alarm]

    @property
    def headline(self) -> str:
        """One sentence."""
        return headline(self.verdicts)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"set": self.name, "baselines": [verdict.to_json() for verdict in self.verdicts]}


def conclude(name: str, members: Sequence[Member], folder: Path, *, command: str) -> Conclusion:
    """Judge a set, write `summary.html` and `summary.json` into its folder, and show both in MLflow, where the first
    member's config tracks.

    Args:
        name: The set's.
        members: Finished or not.
        folder: The set's.
        command: How to go on with it.

    Raises:
        OSError: a file cannot be written.
    """
    conclusion = Conclusion(name=name, verdicts=judge_set(members), page=folder / "summary.html")
    page = reproduction_page(name, conclusion.verdicts, command=command)
    atomic_write_text(conclusion.page, redact(render_reproduction(page)))
    atomic_write_json(folder / FIGURES, conclusion.to_json())
    if address := mlflow_address(members[0].config.tracking):
        show_conclusion(conclusion, mlflow_uri=address)
    return conclusion


def show_conclusion(conclusion: Conclusion, *, mlflow_uri: str) -> None:
    """Show a set in MLflow, in place of an earlier state of it. An outage is a warning."""
    from rl_core.tracking.mlflow_access import MlflowAccess
    from rl_core.tracking.mlflow_runs import RUN_TAG, STAGE_TAG, MlflowRun
    from rl_core.tracking.outage import tolerated_outage

    identity = {RUN_TAG: f"reproduction-{conclusion.name}", STAGE_TAG: "reproduction"}
    mlflow_run = MlflowRun(MlflowAccess(mlflow_uri), experiment=EXPERIMENT, name=conclusion.name, tags=identity)
    with tolerated_outage("the reproduction"):
        _show(mlflow_run, conclusion)


def _show(mlflow_run: "MlflowRun", conclusion: Conclusion) -> None:
    mlflow_run.set_status("RUNNING")
    mlflow_run.set_tags({f"standing.{verdict.name}": verdict.standing for verdict in conclusion.verdicts})
    metrics = headline_metrics(conclusion)
    mlflow_run.log_metrics({name: value for name, value in metrics.items() if mlflow_run.latest_metric(name) != value})
    mlflow_run.log_file(conclusion.page)
    mlflow_run.log_file(conclusion.page.with_name(FIGURES))
    mlflow_run.set_status("FAILED" if conclusion.alarms else "FINISHED")


def headline_metrics(conclusion: Conclusion) -> dict[str, float]:
    """The figures that MLflow shows of each baseline: its accuracy, and the difference to its last good run."""
    metrics = {"alarms": float(len(conclusion.alarms))}
    for verdict in conclusion.verdicts:
        if verdict.reproduction is not None:
            metrics[f"accuracy/{verdict.name}"] = verdict.reproduction.accuracy
        if verdict.drift is not None:
            metrics[f"difference/{verdict.name}"] = verdict.drift.comparison.difference
    return metrics


def markdown(conclusion: Conclusion) -> str:
    """The set as a Markdown page."""
    lines = [
        f"# {conclusion.headline}",
        "",
        "| baseline | standing | accuracy | reproduced by | to the last good run, points | run |",
        "|---|---|---|---|---|---|",
        *(_row(verdict) for verdict in conclusion.verdicts),
        "",
        *(f"- {verdict.name}: {'; '.join(verdict.reasons)}" for verdict in conclusion.verdicts),
        f"- The page: `{conclusion.page.absolute()}`",
    ]
    return redact("\n".join(lines)) + "\n"


def _row(verdict: Verdict) -> str:
    found = verdict.reproduction
    cells = [verdict.name, verdict.standing]
    cells += [percent(found.accuracy)] if found else [""]
    cells += [" to ".join(map(percent, found.band)) if found and found.band else ""]
    cells += [points(verdict.drift.comparison.difference) if verdict.drift else "", f"`{verdict.run.name}`"]
    return "| " + " | ".join(cells) + " |"
