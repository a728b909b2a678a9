"""What the page of a set of baselines shows, as plain values, and how it becomes one HTML file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rl_core.evaluation.statistics import SIGNIFICANT, Interval
from rl_core.run_directory import RunDirectory
from tasks.cache.code_version import PACKAGE
from tasks.comparison.curves import charts
from tasks.comparison.groups import ComparedRun, RunGroup
from tasks.reproduction.verdict import Verdict
from tasks.results.report_charts import Chart, draw
from tasks.results.report_data import last_epoch
from tasks.results.report_page import Accuracy, points, template
from tasks.results.run_facts import RunFacts

_STANDING_CLASS = {"good": "higher", "regressed": "lower", "failed": "lower", "not comparable": "open"}


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineRow:
    """A baseline. Accuracies are shares of 1; None where nothing is known.

    Attributes:
        verdict: What it came to.
        accuracy: The run's, after training.
        base: Of the model that training started from.
        earlier: The last good run's accuracy.
        seconds: Wall time of the run's stages, without those that were taken over.
        code: Which code trained it.
        chart: Reward of this run and of the last good one; None without a run.
    """

    verdict: Verdict
    accuracy: Accuracy | None = None
    base: float | None = None
    earlier: float | None = None
    seconds: float = 0.0
    code: str = ""
    chart: Chart | None = None

    @property
    def band(self) -> Interval | None:
        """Accuracies that reproduce the published number."""
        found = self.verdict.reproduction
        return found.band if found else None

    @property
    def standing_class(self) -> str:
        """The class that colours the standing."""
        return _STANDING_CLASS[self.verdict.standing]

    @property
    def headline(self) -> str:
        """The difference to the last good run in percentage points; empty where there is none."""
        return points(self.verdict.drift.comparison.difference) if self.verdict.drift else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReproductionPage:
    """Everything on the page. `command` goes on with the set."""

    name: str
    rows: Sequence[BaselineRow]
    command: str

    @property
    def alarms(self) -> list[BaselineRow]:
        """What somebody should look at."""
        return [row for row in self.rows if row.verdict.is_alarm]

    @property
    def headline(self) -> str:
        """One sentence."""
        return headline([row.verdict for row in self.rows])


def headline(verdicts: Sequence[Verdict]) -> str:
    """How a set ended, in one sentence."""
    alarms = [f"{verdict.name} {verdict.standing}" for verdict in verdicts if verdict.is_alarm]
    if alarms:
        return f"{len(alarms)} of {len(verdicts)} baselines need a look: {', '.join(alarms)}"
    return "the baseline is good" if len(verdicts) == 1 else f"all {len(verdicts)} baselines are good"


def reproduction_page(name: str, verdicts: Sequence[Verdict], *, command: str) -> ReproductionPage:
    """Everything that the page shows of a judged set.

    Args:
        name: The set's.
        verdicts: Of its members.
        command: How to go on with it.
    """
    return ReproductionPage(name=name, rows=[_row(verdict) for verdict in verdicts], command=command)


def render_reproduction(page: ReproductionPage) -> str:
    """The page as one self-contained HTML document: no script, no file beside it, nothing from the network."""
    drawn = [(row, draw(row.chart)) for row in page.rows if row.chart is not None and not row.chart.empty]
    return template("reproduction.html.jinja").render(page=page, charts=drawn, significant=SIGNIFICANT)


def _row(verdict: Verdict) -> BaselineRow:
    found = verdict.reproduction
    if found is None:
        return BaselineRow(verdict=verdict)
    facts = RunFacts(verdict.run)
    result = facts.headline("trained")
    return BaselineRow(
        verdict=verdict,
        accuracy=Accuracy(accuracy=found.accuracy, n=result.n, low=found.ci95[0], high=found.ci95[1]),
        base=found.accuracy_before,
        earlier=found.accuracy - verdict.drift.comparison.difference if verdict.drift else None,
        seconds=sum(manifest.seconds for manifest in facts.stages if manifest.reused_from is None),
        code=_code(facts),
        chart=_reward(verdict, facts),
    )


def _code(facts: RunFacts) -> str:
    trained = last_epoch(facts.stages)
    return trained.result["versions"][PACKAGE] if trained else ""


def _reward(verdict: Verdict, facts: RunFacts) -> Chart:
    groups = [RunGroup(label="this run", runs=(ComparedRun(facts),))]
    if verdict.last_good is not None:
        earlier = RunFacts(RunDirectory(facts.run.root.parent / verdict.last_good))
        groups.append(RunGroup(label="last good run", runs=(ComparedRun(earlier),)))
    return replace(charts(groups)[0], title=verdict.name)
