"""From scored groups to the inputs of the estimator, and to the samples of an update."""

from collections.abc import Mapping, Sequence

import numpy as np

from rl_core.algorithms.advantages import AdvantageInputs, Grouped
from rl_core.algorithms.token_advantages import TokenValues
from rl_core.config.algorithm import AlgorithmConfig
from rl_core.types import Float32Array, Group, RolloutKey, Score, TrainGroup, TrainSample

TokenArrays = Sequence[Sequence[Float32Array]]
"""[group][rollout] -> [R] float32."""


def scored_groups(
    groups: Sequence[Group], scores: Mapping[RolloutKey, Score], *, config: AlgorithmConfig
) -> list[Group]:
    """The groups without the rollouts that have no score. A group that then has fewer rollouts than the estimator
    needs, two for a group baseline, is left out (docs/architecture.md, "Bad input is named")."""
    kept = [Group(prompt=g.prompt, rollouts=[r for r in g.rollouts if not scores[r.key].error]) for g in groups]
    return [group for group in kept if len(group.rollouts) >= config.advantage.smallest_group]


def advantage_inputs(
    groups: Sequence[Group],
    scores: Mapping[RolloutKey, Score],
    *,
    kl_penalties: Grouped | None,
    greedy_rewards: Mapping[str, float],
    values: TokenArrays,
) -> AdvantageInputs:
    """The inputs of the advantage estimator, from groups whose rollouts all have a score.

    Args:
        kl_penalties: [group][rollout] -> [R] the KL penalty that is subtracted from each token's reward, if any.
        greedy_rewards: Prompt uid -> reward of the greedy response; empty if the estimator needs none.
        values: [group][rollout] -> [R] the critic's values; empty if there is no critic.
    """
    rewards = [[_token_rewards(len(r.response_ids), scores[r.key].overall) for r in g.rollouts] for g in groups]
    if kl_penalties is not None:
        rewards = [
            [reward - penalty for reward, penalty in zip(*pair, strict=True)]
            for pair in zip(rewards, kl_penalties, strict=True)
        ]
    greedy = [greedy_rewards[group.prompt.uid] for group in groups] if greedy_rewards else []
    return AdvantageInputs(
        token_rewards=rewards,
        greedy_rewards=greedy,
        values=[[part.astype(np.float64) for part in group] for group in values],
    )


def train_groups(
    groups: Sequence[Group],
    *,
    advantages: Grouped,
    old: TokenArrays,
    ref: TokenArrays | None,
    importance_weights: Grouped | None,
    values: TokenArrays = (),
    returns: Grouped = (),
    overlong_filtering: bool = False,
) -> list[TrainGroup]:
    """The groups with everything that the losses need of each token, all [group][rollout] -> [R].

    Args:
        ref: Log-probs under the reference; None if they are not needed.
        importance_weights: Of the off-policy correction; None for 1.
        values: The critic's values; empty if there is no critic, as are `returns`.
        overlong_filtering: Leave responses that were cut at the longest length out of the losses.
    """
    return [
        TrainGroup(
            prompt=group.prompt,
            samples=[
                TrainSample(
                    rollout=rollout,
                    advantages=advantages[i][j].astype(np.float32),
                    old_log_probs=old[i][j],
                    ref_log_probs=ref[i][j] if ref else None,
                    importance_weights=importance_weights[i][j].astype(np.float32) if importance_weights else None,
                    values=values[i][j] if values else None,
                    returns=returns[i][j].astype(np.float32) if returns else None,
                    in_loss=not (overlong_filtering and rollout.finish_reason == "length"),
                )
                for j, rollout in enumerate(group.rollouts)
            ],
        )
        for i, group in enumerate(groups)
    ]


def _token_rewards(length: int, score: float) -> TokenValues:
    """[R] The score is the reward of the last token; all others have 0."""
    rewards = np.zeros(length)
    rewards[-1] = score
    return rewards
