"""What a run came to in one sentence, and what to look at before believing it: for the report and for MLflow."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from statistics import fmean
from typing import Any, Final

from rl_core.config.tolerances import agreement_bounds
from rl_core.evaluation.result import EvaluationResult
from rl_core.evaluation.statistics import SIGNIFICANT
from tasks.results.report_page import Outcome, p_value, percent, points
from tasks.results.run_facts import RunFacts

MOST_REMARKS: Final = 3
_MANY: Final = 0.1
"""Share of responses that are cut or unreadable above which accuracies say less than they seem to."""
_LAST: Final = 0.1
"""Share of the steps, at the end, over which a metric is averaged."""


def verdict(facts: RunFacts) -> str:
    """From which held-out accuracy to which, with the interval of the difference, and what that is worth. Raises
    FileNotFoundError where the run was not evaluated."""
    base, trained = facts.headline("base"), facts.headline("trained")
    moved = f"from {percent(base.accuracy)} to {percent(trained.accuracy)}"
    asked = f"{trained.n} items, {trained.mode}"
    found = facts.comparison()
    if found is None:
        return f"Held-out accuracy went {moved} ({asked}); {_without_pairs(base, trained)}."
    low, high = found.ci95
    measured = f"{points(found.difference)} points, 95 % interval {points(low)} to {points(high)}; {asked}"
    if not found.flipped:
        return f"Held-out accuracy did not change: {percent(trained.accuracy)} ({asked}), and no answer turned."
    if found.p_value >= SIGNIFICANT:
        return (
            f"Held-out accuracy went {moved} ({measured}), which chance explains (McNemar p {p_value(found.p_value)}): "
            "these items do not show that anything was learned."
        )
    way = "rose" if found.difference > 0 else "fell"
    return (
        f"Held-out accuracy {way} {moved} ({measured}), more than chance explains (McNemar p "
        f"{p_value(found.p_value)}); it is one run with seed {facts.config.seed}, and another seed may end elsewhere."
    )


def outcome(facts: RunFacts) -> Outcome:
    """Which way the accuracy went, by more than chance; `open` where that is not shown."""
    base, trained, found = facts.headline("base"), facts.headline("trained"), facts.comparison()
    is_shown = found.p_value < SIGNIFICANT if found else not _overlap(base, trained)
    if not is_shown or trained.accuracy == base.accuracy:
        return "open"
    return "higher" if trained.accuracy > base.accuracy else "lower"


def _overlap(base: EvaluationResult, trained: EvaluationResult) -> bool:
    return base.ci95[0] <= trained.ci95[1] and trained.ci95[0] <= base.ci95[1]


def _without_pairs(base: EvaluationResult, trained: EvaluationResult) -> str:
    return f"the 95 % intervals of the two {'overlap' if _overlap(base, trained) else 'do not overlap'}"


def remarks(facts: RunFacts) -> list[str]:
    """Up to three things to look at, in sentences, the gravest first; empty for a run without fault. Raises
    FileNotFoundError where the run was not evaluated."""
    return list(islice(_all_remarks(facts), MOST_REMARKS))


def _all_remarks(facts: RunFacts) -> Iterator[str]:
    yield from facts.doubts
    yield from _failed_rewards(facts)
    trained = facts.headline("trained")
    if (cut := trained.truncation_rate) is not None and cut > _MANY:
        longest = facts.config.rollout.max_response_length
        yield f"{percent(cut)} of the held-out responses were cut at {longest} tokens (rollout.max_response_length)."
    if (unread := trained.parse_failure_rate) is not None and unread > _MANY:
        yield f"In {percent(unread)} of the held-out responses the reward found no answer to read."
    same = groups_without_spread(facts.metrics)
    if same is not None and same > 0.5 and not facts.doubts:
        yield f"At the end {percent(same)} of the groups had equal rewards, from which nothing is learned."
    bound = agreement_bounds(facts.config).percentile
    gap = max((record.get("agreement/log_prob_gap_p999", 0.0) for record in facts.metrics), default=0.0)
    if gap > bound / 2:
        yield f"Generator and trainer disagreed by up to {gap:.2g} (99.9th percentile of a step; bound {bound:g})."


def _failed_rewards(facts: RunFacts) -> Iterator[str]:
    in_training = sum(int(record.get("reward/failed", 0)) for record in facts.metrics)
    held_out = sum(facts.headline(evaluated).failed_rewards for evaluated in ("base", "trained"))
    where = [
        f"{count} in {what}" for count, what in ((in_training, "training"), (held_out, "the evaluations")) if count
    ]
    if where:
        yield f"The reward failed for {' and '.join(where)}; these responses were left out."


def groups_without_spread(metrics: Sequence[Mapping[str, Any]]) -> float | None:
    """The share of groups with equal rewards in the last tenth of the steps; None where no step has it."""
    values = [record["reward/zero_std_groups"] for record in metrics if "reward/zero_std_groups" in record]
    return fmean(values[-max(1, round(_LAST * len(values))) :]) if values else None
