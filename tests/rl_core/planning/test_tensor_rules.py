"""Generators that several workers cannot hold together are named before a run starts."""

from dataclasses import replace

import pytest

from rl_core.config.cluster import ClusterConfig
from rl_core.planning.tensor_rules import generator_part_problems, generator_problems
from tests.rl_core.planning.test_memory import SEVEN_BILLION


@pytest.mark.parametrize(
    ("devices", "nodes", "size", "is_refused"),
    [(1, 1, 1, False), (8, 1, 4, False), (4, 2, 4, False), (2, 2, 4, True), (1, 1, 2, True), (6, 1, 4, True)],
)
def test_a_generator_lies_on_workers_of_one_machine(devices: int, nodes: int, size: int, is_refused: bool) -> None:
    cluster = ClusterConfig(devices=devices, nodes=nodes, tensor_parallel_size=size)
    assert [problem.fatal for problem in generator_problems(cluster)] == [True] * is_refused


@pytest.mark.parametrize(
    ("changes", "size", "what"),
    [
        ({}, 4, None),
        ({}, 8, "28 attention heads cannot be shared equally by 8 ranks"),
        ({"vision_heads": 16}, 4, None),
        ({"vision_heads": 16}, 7, "16 attention heads of the vision tower"),
        ({"intermediate_size": 18_945}, 2, "feed-forward layers of width 18945"),
        ({"key_value_size": 3 * 128}, 2, "neither of 3 key/value heads and 2 ranks"),
    ],
)
def test_every_layer_is_divided(changes: dict[str, int], size: int, what: str | None) -> None:
    cluster = ClusterConfig(devices=size, tensor_parallel_size=size)
    told = [*generator_part_problems(cluster, replace(SEVEN_BILLION, **changes))]
    assert [problem.where for problem in told] == ["cluster.tensor_parallel_size"] * (what is not None)
    assert all(what is not None and what in problem.what for problem in told)


def test_a_fix_names_sizes_that_work() -> None:
    (problem,) = generator_part_problems(
        ClusterConfig(devices=8, tensor_parallel_size=8), replace(SEVEN_BILLION, vision_heads=16)
    )
    assert problem.fix == "set it to one of 1, 2, 4"
