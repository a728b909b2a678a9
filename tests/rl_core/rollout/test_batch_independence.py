"""Whatever else an engine computes, a request has one response: at a size at which the products of vLLM's layers depend
on whether they are given one row or several. pytest runs this module before those that share engines."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"hidden_size": 1024, "num_heads": 8, "num_key_value_heads": 4, "intermediate_size": 2816}
    return build_folder(tmp_path_factory.mktemp("wide") / "model", "qwen2_5_vl", **sizes)


@contextmanager
def running(folder: Path, *, threads: int, **settings: int) -> Iterator[Running]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    policy = load_tiny_policy("qwen2_5_vl", folder)
    engine = start_vllm(policy, **settings)
    try:
        yield Running(policy=policy, engine=engine)
    finally:
        engine.close()
        torch.set_num_threads(before)


def one_by_one(running: Running, requests: list[GenerationRequest]) -> Rollouts:
    return {
        key: rollout for one in requests[::5] for key, rollout in running.generate([one], training_sampling()).items()
    }


def reversed_list(running: Running, requests: list[GenerationRequest]) -> Rollouts:
    return running.generate(requests[::-1], training_sampling())


def after_an_aborted_one(running: Running, requests: list[GenerationRequest]) -> Rollouts:
    stream = running.engine.generate(requests, training_sampling())
    next(stream)
    stream.close()
    return running.generate(requests[::3], training_sampling())


@pytest.mark.parametrize("threads", [1, 2])
def test_a_response_is_the_same_whatever_is_computed_beside_it(wide: Path, threads: int) -> None:
    ways: list[Callable[[Running, list[GenerationRequest]], Rollouts]] = [
        one_by_one, reversed_list, after_an_aborted_one,
    ]  # fmt: skip
    with running(wide, threads=threads) as many:
        requests = make_requests(many.policy.prompts(), 8)
        many.sync()
        together = many.generate(requests, training_sampling())
        for way in ways:
            many.sync()  # with empty caches
            found = way(many, requests)
            assert_same_rollouts(found, {key: together[key] for key in found})
    with running(wide, threads=threads, max_num_seqs=3) as few:
        few.sync()
        assert_same_rollouts(few.generate(requests, training_sampling()), together)
