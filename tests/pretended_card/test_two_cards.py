"""Two pretended cards: FSDP2, a generator of two workers, and sequences that two workers share."""

from typing import Any

import pytest

from tests.pretended_card.conftest import Runner

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"cluster.sharding": "full"}, id="FSDP2"),
        pytest.param({"cluster.sequence_parallel_size": 2}, id="sequence parallel"),
        pytest.param({"cluster.tensor_parallel_size": 2}, id="tensor parallel"),
    ],
)
def test_two_workers_train_together(runner: Runner, changes: dict[str, Any]) -> None:
    result = runner.run({"cluster.devices": 2} | changes, cards=2)
    assert result.code == 0, result.output
    assert [step["step"] for step in result.steps()] == [1, 2]
    assert runner.card.calls()["communicator"]["of several ranks"] >= 2, "nothing went through NCCL"
