"""A group filter of your own: copy this file, edit it, and set
`algorithm.online_filtering: {type: custom, function: FILE:NAME}`."""

from rl_core.algorithms.group_filter import GroupScores


def differs(scores: GroupScores, *, component: str = "overall", least: float = 0.1) -> bool:
    """Whether the best and the worst response of a group are at least so far apart.

    `scores[component]` is [n] float64, one number a response. Keyword arguments come from
    `algorithm.online_filtering.kwargs`.
    """
    values = scores[component]
    return bool(values.max() - values.min() >= least)
