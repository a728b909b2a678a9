"""What an evaluation comes to."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from statistics import fmean
from typing import Any

from rl_core.evaluation.items import EvaluationItem, Mode
from rl_core.evaluation.statistics import Interval, clustered_wilson_interval
from rl_core.rewards.components import OVERALL


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationResult:
    """The figures of one mode.

    Attributes:
        mode: "greedy" or "sampled".
        n: Items.
        samples: Responses, n times the responses an item.
        accuracy: Share of right responses; a response without a score is wrong.
        ci95: 95 % interval of the accuracy, by items (statistics.clustered_wilson_interval).
        parse_failure_rate: Share of the responses without a readable answer, among those of which the reward says
            it; None where it says it of none.
        truncation_rate: Share of responses that ran into the token limit.
        mean_length: Mean response length, tokens.
        reward_mean: Mean `overall` of the responses with a score.
        failed_rewards: Responses without a score.
    """

    mode: Mode
    n: int
    samples: int
    accuracy: float
    ci95: Interval
    parse_failure_rate: float | None
    truncation_rate: float
    mean_length: float
    reward_mean: float
    failed_rewards: int

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` of them gives an equal result."""
        return asdict(self) | {"ci95": list(self.ci95)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "EvaluationResult":
        """The result of which `values` is the JSON."""
        return cls(**(dict(values) | {"ci95": tuple(values["ci95"])}))


def summarise(items: Sequence[EvaluationItem]) -> EvaluationResult:
    """Sum up the items of one mode.

    Raises:
        ValueError: the items are of several modes, differ in the number of responses, or none has a score.
    """
    modes = {item.mode for item in items}
    if len(modes) != 1:
        raise ValueError(f"need the items of one mode, got those of {sorted(modes)}")
    rewards = [item.components[OVERALL] for item in items if item.error is None]
    if not rewards:
        raise ValueError(f"none of {len(items)} responses has a score; the first reason: {items[0].error}")
    shares, samples_an_item = _item_shares(items)
    known = [item.parse_failed for item in items if item.parse_failed is not None]
    return EvaluationResult(
        mode=modes.pop(),
        n=len(shares),
        samples=len(items),
        accuracy=fmean(shares),
        ci95=clustered_wilson_interval(shares, samples_an_item=samples_an_item),
        parse_failure_rate=fmean(known) if known else None,
        truncation_rate=fmean(item.finish_reason == "length" for item in items),
        mean_length=fmean(item.length for item in items),
        reward_mean=fmean(rewards),
        failed_rewards=len(items) - len(rewards),
    )


def _item_shares(items: Sequence[EvaluationItem]) -> tuple[list[float], int]:
    """The share of right responses of each item, and how many responses each has."""
    by_uid = groupby(sorted(items, key=_uid), key=_uid)
    verdicts = [[item.verdict for item in group] for _, group in by_uid]
    counts = {len(group) for group in verdicts}
    if len(counts) != 1:
        raise ValueError(f"every item needs the same number of responses, got {sorted(counts)}")
    return [fmean(group) for group in verdicts], counts.pop()


def _uid(item: EvaluationItem) -> str:
    return item.uid
