"""The contents of the page of a set of baselines as plain values, and its HTML file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rl_core.evaluation.comparison import GroupAccuracy
from rl_core.evaluation.statistics import SIGNIFICANT, Interval
from rl_core.run_directory import RunDirectory
from tasks.cache.code_version import PACKAGE
from tasks.comparison.curves import charts
from tasks.comparison.groups import RunGroup
from tasks.comparison.page import interval_over_seeds
from tasks.reproduction.baseline_result import BaselineResult
from tasks.results.report_charts import Chart, draw
from tasks.results.report_data import last_epoch
from tasks.results.report_page import points, template
from tasks.results.run_facts import RunFacts

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
    def interval_over_seeds(self) -> str:
        """The 95 % interval over seeds, or "one seed"."""
        return interval_over_seeds(self.accuracy) if self.accuracy else ""

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
    """Everything on the page. `command` continues the set."""

    name: str
    rows: Sequence[BaselineRow]
    command: str

    @property
    def alarms(self) -> list[BaselineRow]:
        """The rows that somebody should look at."""
        return [row for row in self.rows if row.result.is_alarm]

    @property
    def headline(self) -> str:
        """One sentence."""
        return headline([row.result for row in self.rows])


def headline(results: Sequence[BaselineResult]) -> str:
    """The status of a set in one sentence."""
    alarms = [f"{result.name} {result.status}" for result in results if result.is_alarm]
    if alarms:
        return f"{len(alarms)} of {len(results)} baselines need a look: {', '.join(alarms)}"
    return "the baseline is good" if len(results) == 1 else f"all {len(results)} baselines are good"


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
