"""Two pretended cards: FSDP2, a generator of two workers, and sequences that two workers share."""

from typing import Any

import pytest

from tests.pretended_card.conftest import Runner

pytestmark = pytest.mark.timeout(1200)

# Not everything that the two workers of a generator exchange is computed on the card, so their numbers are not compared
# with the trainer's: tests/rl_core/workers/test_ray_group.py does so on CPUs.
UNCOMPARED = {
    "rollout.max_log_prob_gap": 100.0,
    "rollout.max_mean_log_prob_gap": 100.0,
    "rollout.min_log_prob_correlation": 0.0,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "FSDP2": {"cluster.sharding": "full"},
    "tensor parallel": {"cluster.tensor_parallel_size": 2} | UNCOMPARED,
    "sequence parallel": {"cluster.sequence_parallel_size": 2},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_two_workers_train_together(runner: Runner, changes: dict[str, Any]) -> None:
    result = runner.run({"cluster.devices": 2} | changes, cards=2)
    assert result.code == 0, result.output
    assert [step["step"] for step in result.steps()] == [1, 2]
    assert runner.card.calls()["communicator"]["of several ranks"] >= 2, "nothing went through NCCL"
