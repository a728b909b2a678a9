"""Ranks that hold a vLLM together come to the same decisions with asynchronous scheduling, which they use on a GPU."""

from pathlib import Path

import numpy as np
import pytest

from tests.rl_core.distributed.spmd import run_ranks
from tests.rl_core.rollout.async_ranks import generate_asynchronously
from tests.rl_core.rollout.engines import Running, assert_same_rollouts, make_requests, training_sampling


@pytest.mark.parametrize("running", ["llama"], indirect=True)
def test_two_ranks_take_the_same_steps_however_long_each_waits_for_a_result(running: Running, tmp_path: Path) -> None:
    first, other = run_ranks(generate_asynchronously, tmp_path, running.policy.folder, size=2)
    assert {first["scheduler"], other["scheduler"]} == {"AsyncScheduler"}
    assert first["steps"] == other["steps"]
    assert len(first["taken"]) == 4
    assert other["whole"] == {} and other["taken"] == []
    assert_same_rollouts(first["whole"], first["again"])
    running.sync()
    alone = running.generate(make_requests(running.policy.prompts(), 6), training_sampling())
    assert first["whole"].keys() == alone.keys()
    for key, rollout in alone.items():
        assert rollout.response_ids.tolist() == first["whole"][key].response_ids.tolist()
        np.testing.assert_allclose(first["whole"][key].log_probs, rollout.log_probs, atol=1e-4)
