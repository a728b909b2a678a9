"""The contents of the page of a set of baselines as plain values, and its HTML file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rl_core.evaluation.statistics import SIGNIFICANT, Interval
from rl_core.run_directory import RunDirectory
from tasks.cache.code_version import PACKAGE
from tasks.comparison.curves import charts
from tasks.comparison.groups import ComparedRun, RunGroup
from tasks.reproduction.baseline_result import BaselineResult
from tasks.results.report_charts import Chart, draw
from tasks.results.report_data import last_epoch
from tasks.results.report_page import Accuracy, points, template
from tasks.results.run_facts import RunFacts

_CSS_CLASS = {"good": "higher", "regressed": "lower", "failed": "lower", "not comparable": "open"}


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineRow:
    """The row of a baseline. Accuracies are shares of 1; None where nothing is known.

    Attributes:
        result: The result of the baseline.
        accuracy: Accuracy of the trained model.
        base: Accuracy of the model that training started from.
        earlier: Accuracy of the last good run.
        seconds: Wall time of the run's stages, without the stages that were taken over from other runs.
        code: The version of Sightline that trained the model.
        chart: Reward of this run and of the last good run; None where the run did not finish.
    """

    result: BaselineResult
    accuracy: Accuracy | None = None
    base: float | None = None
    earlier: float | None = None
    seconds: float = 0.0
    code: str = ""
    chart: Chart | None = None

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
        """The difference from the last good run in percentage points; empty where there is no such run."""
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
    """Everything that the page of a judged set shows.

    Args:
        name: Name of the set.
        results: The results of its members.
        command: The command that continues the set.
    """
    return ReproductionPage(name=name, rows=[_row(result) for result in results], command=command)


def render_reproduction(page: ReproductionPage) -> str:
    """The page as one self-contained HTML document, without scripts, other files and network access."""
    drawn = [(row, draw(row.chart)) for row in page.rows if row.chart is not None and not row.chart.empty]
    return template("reproduction.html.jinja").render(page=page, charts=drawn, significant=SIGNIFICANT)


def _row(result: BaselineResult) -> BaselineRow:
    found = result.reproduction
    if found is None:
        return BaselineRow(result=result)
    facts = RunFacts(result.run)
    n = facts.headline("trained").n
    return BaselineRow(
        result=result,
        accuracy=Accuracy(accuracy=found.accuracy, n=n, low=found.ci95[0], high=found.ci95[1]),
        base=found.accuracy_before,
        earlier=found.accuracy - result.drift.comparison.difference if result.drift else None,
        seconds=sum(manifest.seconds for manifest in facts.stages if manifest.reused_from is None),
        code=_code(facts),
        chart=_reward(result, facts),
    )


def _code(facts: RunFacts) -> str:
    trained = last_epoch(facts.stages)
    return trained.result["versions"][PACKAGE] if trained else ""


def _reward(result: BaselineResult, facts: RunFacts) -> Chart:
    groups = [RunGroup(label="this run", runs=(ComparedRun(facts),))]
    if result.last_good is not None:
        earlier = RunFacts(RunDirectory(facts.run.root.parent / result.last_good))
        groups.append(RunGroup(label="last good run", runs=(ComparedRun(earlier),)))
    return replace(charts(groups)[0], title=result.name)
