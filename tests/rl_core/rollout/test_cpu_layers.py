"""Sightline's layers in vLLM's models, beside vLLM's own code in the same layers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rl_core.rollout.engines import Running

VISION = ("qwen2_5_vl", "qwen2_vl", "qwen3_vl")
vision = pytest.mark.parametrize("running", VISION, indirect=True)


def _layer(running: Running, name: str) -> torch.nn.Module:
    (layers,) = running.engine._engine.apply_model(
        lambda model: [layer for layer in model.modules() if type(layer).__name__ == name]
    )
    assert layers, f"{running.policy.family} has no {name}"
    return layers[0]


@vision
def test_rotations_are_those_of_vllm_to_the_bit(running: Running) -> None:
    rotary, buffer = _layer(running, "RememberingRotaryEmbedding"), torch.zeros(3, 40, dtype=torch.int64)
    generator = torch.Generator().manual_seed(2)
    for _ in range(3):
        buffer.copy_(torch.randint(0, 300, buffer.shape, generator=generator))  # other positions in the same memory
        for length in (40, 17, 17):
            positions = buffer[:, :length]
            query, key = (torch.randn(length, heads * rotary.head_size, generator=generator) for heads in (4, 2))
            expected = rotary.forward_native(positions, query.clone(), key.clone())
            for rotated, own in zip(rotary(positions, query, key), expected, strict=True):
                assert torch.equal(rotated, own)


@vision
def test_attention_within_images_is_that_of_vllm_to_the_bit(running: Running) -> None:
    attention = _layer(running, "BatchedEncoderAttention")

    @settings(max_examples=20, deadline=None)
    @given(st.lists(st.sampled_from([4, 6, 16, 36, 70]), min_size=1, max_size=9), st.integers(0, 99), st.booleans())
    def check(lengths: list[int], seed: int, flat: bool) -> None:
        bounds = torch.tensor([0, *lengths]).cumsum(0).int()
        shape = (3, 1, sum(lengths), attention.num_heads, attention.head_size)
        states = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        parts = states.flatten(3) if flat else states
        expected = attention.forward_native(*parts, bounds)
        assert torch.equal(attention(*parts, bounds), expected)

    check()


@vision
def test_pixels_are_normalised_as_by_vllm_to_the_bit(running: Running) -> None:
    norm = _layer(running, "InPlaceInputNorm")
    pixels = torch.randint(0, 256, (30, 3 * 392), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    for dtype in (torch.float32, torch.bfloat16):
        expected = norm.forward_native(pixels.clone(), dtype)
        assert torch.equal(norm(pixels, dtype), expected)
    assert pixels.float().std() > 50, "the engine's pixels are left as they are"
