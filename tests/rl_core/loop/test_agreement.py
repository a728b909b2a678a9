"""The comparison of generator and trainer where a step learns from older rollouts, with the real worker."""

from collections.abc import Sequence

import pytest

from rl_core.config.tolerances import COMPARED_GROUPS
from rl_core.loop.learning import compare_with_generator, learn
from rl_core.timing import PhaseTimer
from rl_core.training.agreement import AgreementError
from rl_core.types import Group
from tests.rl_core.steps import take_step


@pytest.fixture
def sampled_now(prompts, config, worker, rewards) -> Sequence[Group]:
    """Groups that the worker's present weights have sampled."""
    groups = take_step(prompts, step=1, config=config, workers=worker, rewards=rewards).collected.generated.groups
    worker.load("policy", worker.trainer.base_folder)
    return groups


def test_rollouts_of_the_present_weights_agree(sampled_now, config, worker):
    timer = PhaseTimer()
    gap = compare_with_generator(sampled_now, config=config, workers=worker, timer=timer)
    compared = sampled_now[:COMPARED_GROUPS]
    assert gap.count == sum(len(rollout.log_probs) for group in compared for rollout in group.rollouts)
    assert gap.largest < 2e-5 and timer.seconds.keys() == {"agreement"}


def test_older_rollouts_are_learned_from_where_newer_ones_agree_and_not_where_these_are_older_too(
    prompts, config, worker, rewards
):
    """Their own log-probs are those of other weights, which the update alone would take for a fault."""
    older = take_step(prompts, step=1, config=config, workers=worker, rewards=rewards).collected
    newer = take_step(prompts, step=2, config=config, workers=worker, rewards=rewards).collected
    worker.load("policy", worker.trainer.base_folder)
    take_step(prompts, step=1, config=config, workers=worker, rewards=rewards)  # to the weights that sampled `newer`

    def learned(groups):
        options = {"step": 2, "config": config, "kl_coef": None, "workers": worker, "timer": PhaseTimer()}
        return dict(learn(older, sampled_now=groups, **options).metrics)

    with pytest.raises(AgreementError, match=r"version 1, and the rollouts come from version\(s\) \[0\]"):
        learned(older.generated.groups)
    metrics = learned(newer.generated.groups)
    assert metrics["agreement/log_prob_gap_max"] < 2e-5
    assert metrics["off_policy/staleness"] == 1.0 and worker.policy_version == 2
