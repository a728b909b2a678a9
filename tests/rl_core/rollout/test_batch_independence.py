"""What a rollout does not depend on, at a size at which vLLM's products round otherwise with another number of rows.
pytest runs this module before those that share engines."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_core.types import GenerationRequest, Rollout, RolloutKey
from tests.rl_core.rollout.engines import (
    Running,
    assert_same_rollouts,
    build_folder,
    load_tiny_policy,
    make_requests,
    start_vllm,
    training_sampling,
)

Rollouts = dict[RolloutKey, Rollout]


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> Path:
    sizes = {"hidden_size": 1024, "num_heads": 8, "num_key_value_heads": 4, "intermediate_size": 2816, "num_layers": 1}
    return build_folder(tmp_path_factory.mktemp("wide") / "model", "qwen2_5_vl", **sizes)


@contextmanager
def engine_of(folder: Path, *, threads: int = 1, **settings: Any) -> Iterator[Running]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    policy = load_tiny_policy("qwen2_5_vl", folder)
    running = Running(policy=policy, engine=start_vllm(policy, **settings))
    try:
        running.sync()
        yield running
    finally:
        running.engine.close()
        torch.set_num_threads(before)


def sampled(running: Running, requests: Sequence[GenerationRequest]) -> Rollouts:
    return running.generate(requests, training_sampling())


def leave_early(running: Running, requests: Sequence[GenerationRequest]) -> None:
    stream = running.engine.generate(requests, training_sampling())
    next(stream)
    stream.close()


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_float32_rollout_depends_on_its_request_alone(wide, threads):
    with engine_of(wide, threads=threads) as running:
        requests = make_requests(running.policy.prompts(), 8)
        together = sampled(running, requests)
        assert_same_rollouts(sampled(running, requests[::-1]), together)
        leave_early(running, requests)
        for one in requests[::5]:
            alone = sampled(running, [one])
            assert_same_rollouts(alone, {key: together[key] for key in alone})
    with engine_of(wide, threads=threads, max_num_seqs=3) as fewer_at_a_time:
        assert_same_rollouts(sampled(fewer_at_a_time, requests), together)


def test_in_bfloat16_the_rollouts_of_a_call_depend_on_its_requests_alone(wide):
    """On what came before they would depend if prompts stayed in the cache: fewer rows would be computed."""
    with engine_of(wide, dtype="bfloat16") as running:
        requests = make_requests(running.policy.prompts(), 8)
        first = sampled(running, requests)
        assert_same_rollouts(sampled(running, requests), first)
        leave_early(running, requests)
        assert_same_rollouts(sampled(running, requests), first)
        sampled(running, requests[::3])
        assert_same_rollouts(sampled(running, requests), first)
