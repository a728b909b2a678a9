"""With and without the code for a CPU, the engine samples the same tokens with the same log-probs, to the bit."""

import os
import pickle
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

from rl_core.cpu_switches import CPU_ENGINE
from rl_core.device import takes_cpu_code
from rl_core.rollout.cpu import products
from rl_core.rollout.cpu.scheduler import DecodeScheduler
from tests.processes import printed_by
from tests.rl_core.rollout.engines import assert_same_rollouts, make_requests, training_sampling

WITHOUT = """
import pickle, sys
from pathlib import Path
from tests.rl_core.rollout.engines import *

policy = load_tiny_policy("qwen2_5_vl", Path(sys.argv[1]))
running = Running(policy=policy, engine=start_vllm(policy))
modules = [name for name in sys.modules if name.startswith("rl_core.rollout.cpu")]
assert not modules, modules
for _ in range(2):  # the second load is the one that copies
    running.sync()
Path(sys.argv[2]).write_bytes(pickle.dumps(running.generate(make_requests(policy.prompts(), 8), training_sampling())))
running.engine.close()
"""


@pytest.mark.parametrize("running", ["qwen2_5_vl"], indirect=True)
def test_switched_off_the_engine_samples_the_same(running, tmp_path):
    """In a process of its own, because this one has an engine already."""
    found = tmp_path / "rollouts"
    environment = os.environ | {CPU_ENGINE: "0", "PYTHONPATH": ".", "PYTHONWARNINGS": "ignore"}
    printed_by(WITHOUT, running.policy.folder, found, variables=environment)
    for _ in range(2):
        running.sync()
    mine = running.generate(make_requests(running.policy.prompts(), 8), training_sampling())
    assert_same_rollouts(mine, pickle.loads(found.read_bytes()))


def test_a_switch_is_0_or_1(monkeypatch):
    assert takes_cpu_code(CPU_ENGINE)
    monkeypatch.setenv(CPU_ENGINE, "0")
    assert not takes_cpu_code(CPU_ENGINE)
    monkeypatch.setenv(CPU_ENGINE, "off")
    with pytest.raises(ValueError, match="SIGHTLINE_CPU_ENGINE=off in the environment: set it to 0"):
        takes_cpu_code(CPU_ENGINE)


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("running", ["qwen2_5_vl"], indirect=True)
def test_a_started_engine_takes_the_float32_logits():
    assert LogitsProcessor._apply_head is products.logits


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 7])
def test_the_logits_are_those_of_vllm(rows, has_bias):
    generator = torch.Generator().manual_seed(rows)
    hidden, weight = (torch.randn(count, 64, generator=generator).bfloat16() for count in (rows, 5001))
    bias = torch.randn(5001, generator=generator).bfloat16() if has_bias else None
    processor = SimpleNamespace(head_dtype=torch.float32)
    head = SimpleNamespace(quant_method=UnquantizedEmbeddingMethod(), weight=weight)
    found = products.logits(processor, head, hidden, bias)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, products._apply_head(processor, head, hidden, bias), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("running", ["qwen2_5_vl"], indirect=True)
def test_requests_that_are_put_back_for_want_of_blocks_go_on_where_they_were(synced, monkeypatch):
    """Their seeds, positions and blocks too: the rollouts are those of a large cache."""
    scheduler = synced.engine._engine.engine_core.engine_core.scheduler
    assert type(scheduler) is DecodeScheduler
    requests = make_requests(synced.policy.prompts()[:3], 8)
    expected = synced.generate(requests, training_sampling())
    put_back, pool = Counter(), scheduler.kv_cache_manager.block_pool
    preempt = scheduler._preempt_request

    def counted(request, *args, **kwargs):
        put_back[request.request_id] += 1
        preempt(request, *args, **kwargs)

    taken, drop_caches = [], synced.engine._drop_caches

    def drop_and_take():
        drop_caches()
        taken.extend(pool.get_new_blocks(pool.get_num_free_blocks() - 12))

    monkeypatch.setattr(scheduler, "_preempt_request", counted)
    monkeypatch.setattr(synced.engine, "_drop_caches", drop_and_take)
    try:
        found = synced.generate(requests, training_sampling())
    finally:
        pool.free_blocks(taken)
    assert len(put_back) > 1
    assert_same_rollouts(found, expected)
