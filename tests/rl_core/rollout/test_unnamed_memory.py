"""What vLLM keeps besides weights, buffers and cache outlives a sleep that drops it."""

from types import SimpleNamespace

import pytest
import torch
from torch._subclasses import FakeTensorMode
from vllm.device_allocator import AllocationData

from rl_core.rollout.unnamed_memory import UnnamedMemory, is_with_weights, unnamed_pieces
from tests.rl_core.rollout.engines import make_requests, training_sampling


def _all(address: int) -> bool:
    return True


def test_parameters_buffers_and_memory_that_is_kept_are_left_alone():
    model = torch.nn.BatchNorm1d(2)
    dropped, kept, view = torch.ones(3), torch.ones(3), model.weight.detach()[1:]
    with FakeTensorMode():
        described = [torch.empty(1), torch.empty(1, device="meta")]
    runner = SimpleNamespace(
        model=model, lists=[{"dropped": (dropped, dropped[1:])}, kept], view=view, described=described
    )
    found = unnamed_pieces(runner, lambda address: address != kept.data_ptr())
    assert [piece.data_ptr() for piece in found] == [dropped.data_ptr()]


def test_only_what_was_made_with_the_weights_is_dropped():
    allocations = {
        start: AllocationData(handle=(0, 100, start, 0), tag=tag)
        for start, tag in [(500, "weights"), (100, "weights"), (200, "kv_cache"), (300, "runtime")]
    }
    is_dropped = is_with_weights(allocations)
    asked = [99, 100, 199, 200, 300, 499, 500, 599, 600]
    assert [address for address in asked if is_dropped(address)] == [100, 199, 500, 599]


@pytest.mark.parametrize("running", ["qwen3_vl"], indirect=True)
def test_an_engine_generates_as_before(running):
    """Qwen3-VL adds the features of images to its first layers from a buffer without a name, which must be zero for
    every other token. A batch with images would set it to zero for a batch without."""
    running.sync()
    (runner,) = running.engine._engine.collective_rpc(lambda worker: worker.model_runner)
    requests = make_requests([running.policy.prompt("text")], 4)
    before = running.generate(requests, training_sampling())
    (features,) = runner.model.deepstack_input_embeds
    memory = UnnamedMemory(unnamed_pieces(runner, _all))
    memory.save()
    features.fill_(1.0)
    assert _tokens(running.generate(requests, training_sampling())) != _tokens(before), "the control"
    for piece in memory.pieces:
        piece.fill_(0x7F)
    memory.restore()
    assert _tokens(running.generate(requests, training_sampling())) == _tokens(before)


def _tokens(rollouts: dict) -> dict:
    return {key: rollout.response_ids.tolist() for key, rollout in rollouts.items()}
