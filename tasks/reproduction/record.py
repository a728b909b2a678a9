"""Records a set of baselines: a page and its figures in the folder of the set, and both in MLflow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rl_core.config.run import RunConfig
from rl_core.evaluation.comparison import GroupAccuracy
from rl_core.evaluation.statistics import SIGNIFICANT, Interval
from rl_core.files import atomic_write_json, atomic_write_text
from rl_core.redaction import redact
from rl_core.run_directory import RunDirectory
from tasks.cache.software import PACKAGE
from tasks.comparison.data import charts
from tasks.comparison.groups import RunGroup
from tasks.comparison.record import GroupTracking, conclude_seeds
from tasks.reproduction.baseline_result import BaselineResult
from tasks.reproduction.baseline_set import Member, judge_set
from tasks.results.report_charts import Chart, draw
from tasks.results.report_data import last_epoch
from tasks.results.report_page import interval_over_seeds, markdown_table, percent, points, template
from tasks.results.run_facts import RunFacts
from tasks.tracking.run_tracking import page_run

EXPERIMENT = "reproductions"
"""MLflow experiment of the sets, whatever experiments their runs belong to."""


_CSS_CLASS = {"good": "higher", "regressed": "lower", "failed": "lower", "undecided": "open", "not comparable": "open"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedRow:
    """A run of a baseline. `seconds` is the wall time of its stages, without those that were taken over from other
    runs; `code` is the version of Sightline that trained the model. Without an accuracy the run did not finish."""

    seed: int
    run: str
    accuracy: float | None = None
    seconds: float = 0.0
    code: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineRow:
    """The row of a baseline. `earlier` is the accuracy of the last good runs, a share of 1; `chart` shows the reward of
    these runs and of the last good ones. Both are None where there are none."""

    result: BaselineResult
    seeds: Sequence[SeedRow]
    earlier: float | None = None
    chart: Chart | None = None

    @property
    def accuracy(self) -> GroupAccuracy | None:
        """Accuracy of the trained models."""
        found = self.result.reproduction
        return found.trained if found else None

    @property
    def band(self) -> Interval | None:
        """Accuracies that reproduce the published number."""
        found = self.result.reproduction
        return found.band if found else None

    @property
    def css_class(self) -> str:
        """CSS class that colours the status."""
        return _CSS_CLASS[self.result.status]

    @property
    def headline(self) -> str:
        """The difference from the last good runs in percentage points; empty where there are no such runs."""
        return points(self.result.drift.comparison.difference) if self.result.drift else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReproductionPage:
    """A judged set. `command` continues it."""

    name: str
    rows: Sequence[BaselineRow]
    command: str

    @property
    def alarms(self) -> list[BaselineRow]:
        """The rows that somebody should look at."""
        return [row for row in self.rows if row.result.is_alarm]

    @property
    def headline(self) -> str:
        """The status of the set in one sentence."""
        alarms = [f"{row.result.name} {row.result.status}" for row in self.alarms]
        if alarms:
            return f"{len(alarms)} of {len(self.rows)} baselines need a look: {', '.join(alarms)}"
        return "the baseline is good" if len(self.rows) == 1 else f"all {len(self.rows)} baselines are good"

    def to_json(self) -> dict[str, Any]:
        """The figures for scripts."""
        return {"set": self.name, "baselines": [row.result.to_json() for row in self.rows]}


def reproduction_page(name: str, results: Sequence[BaselineResult], *, command: str) -> ReproductionPage:
    """Everything that the page of a judged set shows."""
    return ReproductionPage(name=name, rows=[_row(result) for result in results], command=command)


def render_reproduction(page: ReproductionPage) -> str:
    """The page as one self-contained HTML document, without scripts, other files and network access."""
    drawn = [(row, draw(row.chart)) for row in page.rows if row.chart is not None and not row.chart.empty]
    return template("reproduction.html.jinja").render(page=page, charts=drawn, significant=SIGNIFICANT)


def _row(result: BaselineResult) -> BaselineRow:
    seeds = [_seed_row(result, seed) for seed in result.runs]
    found = result.reproduction
    if found is None:
        return BaselineRow(result=result, seeds=seeds)
    earlier = found.trained.mean - result.drift.comparison.difference if result.drift else None
    return BaselineRow(result=result, seeds=seeds, earlier=earlier, chart=_reward(result))


def _seed_row(result: BaselineResult, seed: int) -> SeedRow:
    run = result.runs[seed]
    if seed in result.failures:
        return SeedRow(seed=seed, run=run.name)
    facts = RunFacts(run)
    trained = last_epoch(facts.stages)
    return SeedRow(
        seed=seed,
        run=run.name,
        accuracy=result.accuracies[seed],
        seconds=sum(manifest.seconds for manifest in facts.stages if manifest.reused_from is None),
        code=trained.result["versions"][PACKAGE] if trained else "",
    )


def _reward(result: BaselineResult) -> Chart:
    """The mean reward of the runs and of the last good runs, with the range of the seeds."""
    measured = [result.runs[seed] for seed in result.accuracies]
    groups = [_group("this run", "these runs", measured)]
    if result.last_good:
        folder = measured[0].root.parent
        groups.append(
            _group("last good run", "last good runs", [RunDirectory(folder / name) for name in result.last_good])
        )
    return replace(charts(groups)[0], title=result.name)


def _group(one: str, several: str, runs: Sequence[RunDirectory]) -> RunGroup:
    label = one if len(runs) == 1 else several
    return RunGroup(label=label, runs=tuple(RunFacts(run) for run in runs))


def conclude(name: str, members: Sequence[Member], out: Path, *, command: str) -> ReproductionPage:
    """Judge a set, write its page to `out` with its figures beside it as `.json`, and show both in the MLflow of the
    first member's config; and write the pages of baselines with several seeds."""
    results = judge_set(members)
    page = reproduction_page(name, results, command=command)
    atomic_write_text(out, redact(render_reproduction(page)))
    atomic_write_json(out.with_suffix(".json"), page.to_json())
    for member, result in zip(members, results, strict=True):
        _conclude_baseline_seeds(result, member.config, out, set_name=name)
    if address := members[0].config.tracking.mlflow_address:
        show_conclusion(page, out, mlflow_uri=address)
    return page


def show_conclusion(page: ReproductionPage, out: Path, *, mlflow_uri: str) -> None:
    """Show a set in MLflow, where it replaces an earlier state of the set. An outage is a warning."""
    from rl_core.tracking.tracker import tolerated_outage

    mlflow_run = page_run(mlflow_uri, EXPERIMENT, name=page.name, run=f"reproduction-{page.name}", stage="reproduction")
    with tolerated_outage("the reproduction"):
        mlflow_run.show_page(
            out,
            tags={f"status.{row.result.name}": row.result.status for row in page.rows},
            metrics=_headline_metrics(page),
            status="FAILED" if page.alarms else "FINISHED",
        )


def _headline_metrics(page: ReproductionPage) -> dict[str, float]:
    """The figures that MLflow shows of each baseline: its mean accuracy, for several seeds the 95 % interval over seeds
    and each seed's accuracy, and the difference to its last good runs."""
    metrics = {"alarms": float(len(page.alarms))}
    for result in (row.result for row in page.rows):
        if (found := result.reproduction) is not None:
            metrics[f"accuracy/{result.name}"] = found.trained.mean
            if found.trained.over_seeds is not None:
                low, high = found.trained.over_seeds
                metrics |= {f"ci95_low/{result.name}": low, f"ci95_high/{result.name}": high}
                for seed, accuracy in zip(found.seeds, found.trained.by_seed, strict=True):
                    metrics[f"accuracy_by_seed/{result.name}/seed {seed}"] = accuracy
        if result.drift is not None:
            metrics[f"difference/{result.name}"] = result.drift.comparison.difference
    return metrics


def markdown(page: ReproductionPage, out: Path) -> str:
    """The set as a Markdown page."""
    results = [row.result for row in page.rows]
    columns = ("baseline", "status", "accuracy", "95 % over seeds", "reproduced by", "to the last good runs, points")
    lines = [
        f"# {page.headline}",
        "",
        markdown_table(columns, [_cells(row) for row in page.rows]),
        *(f"- {result.name}: {'; '.join(result.reasons)}" for result in results),
        *(line for result in results for line in _seeds(result)),
        f"- The page: `{out.absolute()}`",
    ]
    return redact("\n".join(lines)) + "\n"


def _cells(row: BaselineRow) -> list[str]:
    mean = percent(row.accuracy.mean) if row.accuracy else ""
    band = " to ".join(map(percent, row.band)) if row.band else ""
    return [row.result.name, row.result.status, mean, interval_over_seeds(row.accuracy), band, row.headline]


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
