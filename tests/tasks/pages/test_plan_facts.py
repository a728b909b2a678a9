"""Batches, number formats and threads in words."""

from pathlib import Path

from rl_core.config.loading import load_config
from rl_core.planning.batches import batch_plan
from tasks.pages.plan_facts import plan_facts, work_rows

QUICKSTART = Path(__file__).parents[3] / "configs" / "quickstart.yaml"


def facts(*overrides: str) -> dict[str, str]:
    config = load_config(QUICKSTART, overrides)
    return plan_facts(config, batch_plan(config, train_rows=2048))


def dealt(*overrides: str) -> list[tuple[str, str, str]]:
    config = load_config(QUICKSTART, overrides)
    return work_rows(config, batch_plan(config, train_rows=2048))


def test_the_share_of_each_worker_is_shown_where_there_are_several() -> None:
    assert dealt() == []
    generation, step, passes = dealt("cluster.devices=3", "cluster.nodes=2")
    assert generation[1] == "64 prompts = 512 responses"
    assert generation[2] == "each of 6 generators: up to 11 prompts = 88 responses"
    assert step[0] == "an optimizer step, 4 in a step"
    assert step[1] == "16 groups of 8 = 128 responses"
    assert step[2] == "each of 6 learners: up to 3 groups = 24 responses"
    assert passes[2].startswith("at most ")
    assert dealt("cluster.devices=20")[1][2].endswith("= 8 responses; some take none and wait")


def test_learners_of_several_workers_slice_their_passes() -> None:
    _, step, passes = dealt("cluster.devices=4", "cluster.sequence_parallel_size=2")
    assert step[2] == "each of 2 learners of 2 workers: up to 8 groups = 64 responses"
    assert passes[2].endswith("tree tokens, a slice of 1/2 on each of its workers")


def test_generators_of_several_workers_answer_together() -> None:
    generation, *_ = dealt("cluster={devices: 4, nodes: 2, tensor_parallel_size: 2}")
    assert generation[2] == "each of 4 generators of 2 workers: up to 16 prompts = 128 responses"


def test_draws_are_shown_where_groups_are_filtered() -> None:
    assert "a draw" not in facts()
    found = facts("algorithm.online_filtering={mini_rollout_batch_size: 24, max_try_make_batch: 9}")
    assert found["a draw"] == "24 prompts, until 64 groups pass the filter; at most 9 draws a step"
    assert found["an epoch"] == "2048 rows / 64 = 31 steps; 64 rows are left out"
    assert facts("algorithm.online_filtering={}")["a draw"].startswith("64 prompts")
