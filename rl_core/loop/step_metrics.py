"""Metrics of a step's rollouts, rewards and update: functions of config, data and seed only."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import fsum, isfinite

import numpy as np

from rl_core.algorithms.advantages import Grouped
from rl_core.algorithms.token_advantages import TokenValues
from rl_core.config.reward import mean_metric
from rl_core.training.agreement import LogProbGap
from rl_core.training.batches import OptimizerStepReport, TokenSums, UpdateResult
from rl_core.types import Group, RolloutKey, Score

_EXPLAINED_FLOOR = 1e-5  # as in EasyR1: the variance of equal returns is 0


def rollout_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Lengths in tokens, and the share of responses cut at the limit."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    lengths = np.array([len(rollout.response_ids) for rollout in rollouts])
    prompts = np.array([len(group.prompt.token_ids) for group in groups])
    return {
        "response_length/mean": float(lengths.mean()),
        "response_length/max": float(lengths.max()),
        "response_length/min": float(lengths.min()),
        "response_length/clip_ratio": float(np.mean([rollout.finish_reason == "length" for rollout in rollouts])),
        "prompt_length/mean": float(prompts.mean()),
        "prompt_length/max": float(prompts.max()),
    }


def conversation_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Of responses with tools: means of the model's turns, of its calls and of the images that it got, the numbers of
    calls that were its mistakes and of those that the tool failed, and the shares of responses that ended with calls in
    the last turn, or because the environment was done."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    calls = [[call for put in rollout.insertions for call in put.calls] for rollout in rollouts]
    outcomes = Counter(call.outcome for own in calls for call in own)
    return {
        "tools/turns": float(np.mean([1 + len(rollout.insertions) for rollout in rollouts])),
        "tools/calls": float(np.mean([len(own) for own in calls])),
        "tools/images": float(np.mean([len(rollout.image_uids) for rollout in rollouts])),
        "tools/invalid_calls": float(outcomes["invalid"]),
        "tools/failed_calls": float(outcomes["failed"]),
        "tools/out_of_turns": float(np.mean([rollout.finish_reason == "turns" for rollout in rollouts])),
        "tools/done": float(np.mean([rollout.finish_reason == "done" for rollout in rollouts])),
    }


def reward_metrics(groups: Sequence[Group], scores: Mapping[RolloutKey, Score]) -> dict[str, float]:
    """Mean of each component over the scored rollouts, number of failed rewards, and of those that were not given if
    there are some, mean standard deviation of the reward within a group, and share of the groups in which it is 0."""
    good = [score for score in scores.values() if score.error is None]
    failed = sum(score.has_failed for score in scores.values())
    not_given = len(scores) - len(good) - failed
    means = component_means(good) | ({"reward/not_given": float(not_given)} if not_given else {})
    spreads = [_spread(group, scores) for group in groups]
    return means | {
        "reward/failed": float(failed),
        "reward/group_std": float(np.mean(spreads)) if spreads else 0.0,
        "reward/zero_std_groups": float(np.mean([spread == 0.0 for spread in spreads])) if spreads else 0.0,
    }


def component_means(good: Sequence[Score]) -> dict[str, float]:
    """The mean of each component over the scores. The mean of one that only some scores have must not be taken for a
    mean over all."""
    means = {}
    for name in sorted({name for score in good for name in score.components}):
        given = [score.components[name] for score in good if name in score.components]
        if len(given) == len(good):
            means[mean_metric(name)] = float(np.mean(given))
        else:
            means[f"reward/{name}/mean_where_given"] = float(np.mean(given))
            means[f"reward/{name}/given_share"] = len(given) / len(good)
    return means


def critic_metrics(values: Grouped, returns: Grouped) -> dict[str, float]:
    """Statistics of values and returns, both [group][rollout] -> [R], over all tokens, and the share of the returns'
    variance that the values explain; empty if there is no critic."""
    if not values:
        return {}
    expected, found = (np.concatenate(list(chain.from_iterable(part))) for part in (values, returns))
    unexplained = (found - expected).var() / (found.var() + _EXPLAINED_FLOOR)
    return {
        **_spread_of("critic/values", expected),
        **_spread_of("critic/returns", found),
        "critic/vf_explained_var": float(1.0 - unexplained),
    }


def _spread_of(name: str, tokens: TokenValues) -> dict[str, float]:
    return {
        f"{name}/mean": float(tokens.mean()),
        f"{name}/max": float(tokens.max()),
        f"{name}/min": float(tokens.min()),
    }


def _spread(group: Group, scores: Mapping[RolloutKey, Score]) -> float:
    values = [scores[r.key].overall for r in group.rollouts]
    return 0.0 if min(values) == max(values) else float(np.std(values))


def update_metrics(result: UpdateResult) -> dict[str, float]:
    """Metrics of an update: means over the tokens, the optimizers' reports, and the comparison with the generator."""
    metrics: dict[str, float] = {}
    for owner, reports in (("actor", result.policy), ("critic", result.critic)):
        if reports:
            metrics |= token_means(sums for report in reports for sums in report.tokens)
            metrics |= _optimizer_metrics(owner, reports)
    return metrics if result.log_prob_gap is None else metrics | agreement_metrics(result.log_prob_gap)


def agreement_metrics(gap: LogProbGap) -> dict[str, float]:
    """Metrics of the comparison with the generator; none if no token was compared."""
    if not gap.count:
        return {}
    correlation = {} if gap.correlation is None else {"agreement/log_prob_correlation": gap.correlation}
    return {
        "agreement/log_prob_gap_max": gap.largest,
        "agreement/log_prob_gap_p999": gap.percentile,
        "agreement/log_prob_gap_mean": gap.mean,
        **correlation,
    }


def token_means(parts: Iterable[TokenSums]) -> dict[str, float]:
    """The mean of each metric over the tokens of a step, weighted as in the loss. In an optimizer batch the weights sum
    to one, so that all batches count equally; with `seq_sum_norm` (Dr. GRPO) they sum to its mean response length
    divided by the maximum, so that batches count by their tokens. The sums are exact (`math.fsum`), so the means depend
    neither on the order nor on which worker computed which group."""
    sums: dict[str, list[float]] = defaultdict(list)
    weights: list[float] = []
    for part in parts:
        weights += part.weights
        for name, values in part.sums.items():
            sums[name] += values
    return {name: _total(values) / _total(weights) for name, values in sums.items()}


def _total(values: Sequence[float]) -> float:
    """NaN if a diverging step has infinities of both signs."""
    return fsum(values) if all(map(isfinite, values)) else sum(values)


def _optimizer_metrics(owner: str, reports: Sequence[OptimizerStepReport]) -> dict[str, float]:
    outcomes = [report.outcome for report in reports]
    return {
        f"{owner}/grad_norm": float(np.mean([outcome.grad_norm for outcome in outcomes])),
        f"{owner}/lr": outcomes[-1].lr,
        f"{owner}/skipped_optimizer_steps": float(sum(not outcome.applied for outcome in outcomes)),
    }
