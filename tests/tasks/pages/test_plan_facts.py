"""The batch arithmetic in words."""

from pathlib import Path

from rl_core.config.loading import load_config
from rl_core.planning.batches import batch_plan
from tasks.pages.plan_facts import plan_facts

QUICKSTART = Path(__file__).parents[3] / "configs" / "quickstart.yaml"


def facts(*overrides: str) -> dict[str, str]:
    config = load_config(QUICKSTART, overrides)
    return plan_facts(config, batch_plan(config, train_rows=2048))


def test_draws_are_told_where_groups_are_filtered() -> None:
    assert "a draw" not in facts()
    told = facts("algorithm.online_filtering={mini_rollout_batch_size: 24, max_try_make_batch: 9}")
    assert told["a draw"] == "24 prompts, until 64 groups pass the filter; at most 9 draws a step"
    assert told["an epoch"] == "2048 rows / 64 = 31 steps; 64 rows are left out"
    assert facts("algorithm.online_filtering={}")["a draw"].startswith("64 prompts")
