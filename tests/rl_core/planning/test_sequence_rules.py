"""Workers and heads that cannot be shared equally are named before a run starts."""

from dataclasses import replace

import pytest

from rl_core.config.cluster import ClusterConfig
from rl_core.planning.sequence_rules import head_problems, sequence_problems, why_not_shared
from tests.rl_core.planning.test_memory import SEVEN_BILLION


@pytest.mark.parametrize(
    ("heads", "key_value_heads", "size", "problem"),
    [
        (28, 4, 4, None),
        (16, 2, 4, None),
        (28, 4, 8, "28 attention heads"),
        (12, 3, 2, "neither of 3 key/value heads and 2 ranks"),
    ],
)
def test_heads_that_cannot_be_shared_equally_are_told(
    heads: int, key_value_heads: int, size: int, problem: str | None
) -> None:
    told = why_not_shared(heads, key_value_heads, size)
    assert told is None if problem is None else problem in str(told)


def test_a_fix_names_sizes_that_work() -> None:
    (problem,) = head_problems(ClusterConfig(devices=8, sequence_parallel_size=8), SEVEN_BILLION)
    assert "28 attention heads" in problem.what
    assert problem.fix == "set it to one of 1, 2, 4, 28"
    assert not [*head_problems(ClusterConfig(devices=8, sequence_parallel_size=4), SEVEN_BILLION)]
    text = replace(SEVEN_BILLION, query_size=4 * 128, key_value_size=4 * 128)
    assert not [*head_problems(ClusterConfig(devices=4, sequence_parallel_size=4), text)]


@pytest.mark.parametrize(
    ("devices", "nodes", "size", "fatal"),
    [(8, 1, 2, None), (1, 1, 2, True), (6, 1, 4, True), (2, 2, 4, False), (4, 2, 4, None)],
)
def test_workers_are_put_together_on_a_machine(devices: int, nodes: int, size: int, fatal: bool | None) -> None:
    cluster = ClusterConfig(devices=devices, nodes=nodes, sequence_parallel_size=size)
    assert [problem.fatal for problem in sequence_problems(cluster)] == ([] if fatal is None else [fatal])
