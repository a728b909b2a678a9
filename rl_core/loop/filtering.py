"""Which of the drawn groups are learned from: the filter of `algorithm.online_filtering` on their scores."""

from collections.abc import Mapping, Sequence

import numpy as np

from rl_core.algorithms.group_filter import is_informative
from rl_core.config.algorithm import OnlineFilteringConfig
from rl_core.types import Group, RolloutKey, Score


class TooFewInformativeGroups(RuntimeError):
    """Group filtering has not filled the batch within `algorithm.online_filtering.max_try_make_batch` draws."""


def informative_groups(
    groups: Sequence[Group], scores: Mapping[RolloutKey, Score], filtering: OnlineFilteringConfig
) -> list[Group]:
    """Those of `groups`, whose rollouts all have a score, that pass the filter.

    Raises:
        ValueError: the reward has no component of the name that the filter looks at.
    """
    return [
        group
        for group in groups
        if is_informative(
            _component(group, scores, filtering.filter_key),
            statistic=filtering.statistic,
            low=filtering.filter_low,
            high=filtering.filter_high,
        )
    ]


def _component(group: Group, scores: Mapping[RolloutKey, Score], key: str) -> np.ndarray:
    components = [scores[rollout.key].components for rollout in group.rollouts]
    missing = [found for found in components if key not in found]
    if missing:
        raise ValueError(
            f"algorithm.online_filtering.filter_key is {key!r}, and the reward gave {sorted(missing[0])} for a "
            f"response to prompt {group.prompt.uid}: name one of these"
        )
    return np.array([found[key] for found in components], dtype=np.float64)


def too_few(*, found: int, wanted: int, drawn: int, filtering: OnlineFilteringConfig) -> TooFewInformativeGroups:
    """The error of a step whose last allowed draw has found `found` of `wanted` groups among `drawn` prompts."""
    return TooFewInformativeGroups(
        f"{filtering.max_try_make_batch} draws (algorithm.online_filtering.max_try_make_batch) of {drawn} different "
        f"prompts gave {found} of {wanted} groups whose {filtering.statistic} of {filtering.filter_key} is above "
        f"{filtering.filter_low} and below {filtering.filter_high}; widen the bounds, give easier or harder prompts, "
        f"lower data.rollout_batch_size, or allow more or larger draws"
    )
