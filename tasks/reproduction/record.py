"""Records a set of baselines: a page and its figures in the folder of the set, and both in MLflow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_core.config.run import RunConfig
from rl_core.evaluation.reproduction import Reproduction
from rl_core.files import atomic_write_json, atomic_write_text
from rl_core.redaction import redact
from tasks.comparison.page import interval_over_seeds
from tasks.comparison.seeds import GroupTracking, conclude_seeds
from tasks.reproduction.baseline_result import BaselineResult
from tasks.reproduction.baseline_set import Member, judge_set
from tasks.reproduction.page import headline, render_reproduction, reproduction_page
from tasks.results.report_page import percent, points
from tasks.tracking.run_tracking import page_run

EXPERIMENT = "reproductions"
"""MLflow experiment of the sets, whatever experiments their runs belong to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Conclusion:
    """A judged set: its name, its members' results, and where its page is."""

    name: str
    results: Sequence[BaselineResult]
    page: Path

    @property
    def alarms(self) -> list[BaselineResult]:
        """The results that somebody should look at."""
        return [result for result in self.results if result.is_alarm]

    @property
    def headline(self) -> str:
        """One sentence."""
        return headline(self.results)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"set": self.name, "baselines": [result.to_json() for result in self.results]}


def conclude(name: str, members: Sequence[Member], page: Path, *, command: str) -> Conclusion:
    """Judge a set, write its page and its figures, and show both in the MLflow of the first member's config; and write
    the pages of baselines with several seeds."""
    conclusion = Conclusion(name=name, results=judge_set(members), page=page)
    shown = reproduction_page(name, conclusion.results, command=command)
    atomic_write_text(page, redact(render_reproduction(shown)))
    atomic_write_json(page.with_suffix(".json"), conclusion.to_json())
    for member, result in zip(members, conclusion.results, strict=True):
        _conclude_baseline_seeds(result, member.config, page, set_name=name)
    if address := members[0].config.tracking.mlflow_address:
        show_conclusion(conclusion, mlflow_uri=address)
    return conclusion


def show_conclusion(conclusion: Conclusion, *, mlflow_uri: str) -> None:
    """Show a set in MLflow, where it replaces an earlier state of the set. An outage is a warning."""
    from rl_core.tracking.tracker import tolerated_outage

    name = conclusion.name
    mlflow_run = page_run(mlflow_uri, EXPERIMENT, name=name, run=f"reproduction-{name}", stage="reproduction")
    with tolerated_outage("the reproduction"):
        mlflow_run.show_page(
            conclusion.page,
            tags={f"status.{result.name}": result.status for result in conclusion.results},
            metrics=headline_metrics(conclusion),
            status="FAILED" if conclusion.alarms else "FINISHED",
        )


def headline_metrics(conclusion: Conclusion) -> dict[str, float]:
    """The figures that MLflow shows of each baseline: its mean accuracy, for several seeds the 95 % interval over seeds
    and each seed's accuracy, and the difference to its last good runs."""
    metrics = {"alarms": float(len(conclusion.alarms))}
    for result in conclusion.results:
        if result.reproduction is not None:
            metrics |= _accuracy_metrics(result.name, result.reproduction)
        if result.drift is not None:
            metrics[f"difference/{result.name}"] = result.drift.comparison.difference
    return metrics


def _accuracy_metrics(name: str, found: Reproduction) -> dict[str, float]:
    mean = {f"accuracy/{name}": found.trained.mean}
    if found.trained.over_seeds is None:
        return mean
    low, high = found.trained.over_seeds
    by_seed = zip(found.seeds, found.trained.by_seed, strict=True)
    seeds = {f"accuracy_by_seed/{name}/seed {seed}": accuracy for seed, accuracy in by_seed}
    return {**mean, f"ci95_low/{name}": low, f"ci95_high/{name}": high, **seeds}


def markdown(conclusion: Conclusion) -> str:
    """The set as a Markdown page."""
    lines = [
        f"# {conclusion.headline}",
        "",
        "| baseline | status | accuracy | 95 % over seeds | reproduced by | to the last good runs, points |",
        "|---|---|---|---|---|---|",
        *(_row(result) for result in conclusion.results),
        "",
        *(f"- {result.name}: {'; '.join(result.reasons)}" for result in conclusion.results),
        *(line for result in conclusion.results for line in _seeds(result)),
        f"- The page: `{conclusion.page.absolute()}`",
    ]
    return redact("\n".join(lines)) + "\n"


def _row(result: BaselineResult) -> str:
    found = result.reproduction
    cells = [result.name, result.status]
    cells += [percent(found.trained.mean), interval_over_seeds(found.trained)] if found else ["", ""]
    cells += [" to ".join(map(percent, found.band)) if found and found.band else ""]
    cells += [points(result.drift.comparison.difference) if result.drift else ""]
    return "| " + " | ".join(cells) + " |"


def _seeds(result: BaselineResult) -> Iterator[str]:
    for seed, run in result.runs.items():
        accuracy = percent(result.accuracies[seed]) if seed in result.accuracies else "no accuracy"
        yield f"- {result.name}, seed {seed}: {accuracy}, `{run.name}`"


def seeds_tracking(set_name: str, baseline: str, config: RunConfig) -> GroupTracking:
    """The run in MLflow of a baseline's seeds."""
    return GroupTracking(config, f"{baseline}-{set_name}")


def _conclude_baseline_seeds(result: BaselineResult, config: RunConfig, set_page: Path, *, set_name: str) -> None:
    """Write the page of a baseline's seeds beside the page of the set, and show it in MLflow. A baseline with one seed
    has no such page, and one without an accuracy is only shown as failed. Raises OSError where a file cannot be
    written."""
    if len(result.runs) == 1:
        return
    tracking = seeds_tracking(set_name, result.name, config)
    if result.accuracies:
        out = set_page.with_name(f"seeds-{result.name}.html")
        page, _ = conclude_seeds(result.name, [result.runs[seed] for seed in result.accuracies], result.failures, out)
        tracking.show(page, out)
    if result.failures:
        tracking.fail([result.runs[seed] for seed in result.failures])
