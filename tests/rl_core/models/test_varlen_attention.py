"""What reaches PyTorch's varlen kernel. The kernel needs a GPU; here a function of its documented meaning stands in its
place, behind the signature of the installed one, so that a renamed argument fails."""

import inspect

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention

from rl_core.models import attention
from rl_core.models.attention import attend_varlen, use_tree_attention, vision_varlen
from rl_core.models.vision_tower import vision_attention
from tests.rl_core.models.builders import FAMILIES, VISION_FAMILIES, Bench, relative_difference, take_gradients
from tests.rl_core.models.builders import varlen_attention as plain_varlen

SIGNATURE = inspect.signature(varlen_attn)


def documented_varlen(*args: object, **options: object) -> torch.Tensor:
    """`varlen_attn` as its documentation describes it: causal if the window is (-1, 0), aligned to the bottom right."""
    bound = SIGNATURE.bind(*args, **options)
    bound.apply_defaults()
    given = bound.arguments
    query, key = given["query"], given["key"]
    before, after = given["window_size"]
    assert before >= -1 and after in (0, -1)
    assert given["enable_gqa"] or query.shape[1] == key.shape[1]
    assert query.shape[2] % 8 == 0 and query.shape[2] <= 256
    assert isinstance(given["max_q"], int) and isinstance(given["max_k"], int)
    return plain_varlen(
        query,
        key,
        given["value"],
        cu_seqlens_q=given["cu_seq_q"],
        cu_seqlens_k=given["cu_seq_k"],
        max_seqlen_q=given["max_q"],
        max_seqlen_k=given["max_k"],
        softmax_scale=given["scale"],
        causal=after == 0,
        window_size=given["window_size"],
    )


@pytest.fixture
def kernel_on_a_cpu(monkeypatch) -> None:
    monkeypatch.setattr(attention, "varlen_attn", documented_varlen)


@pytest.mark.parametrize("head_size", [8, 12, 18])
def test_heads_of_any_size_are_padded_and_cut(kernel_on_a_cpu, head_size):
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(5, heads, head_size, generator=generator) for heads in (4, 2, 2))
    bounds = torch.tensor([0, 2, 5], dtype=torch.int32)
    options = {
        "cu_seqlens_q": bounds,
        "cu_seqlens_k": bounds,
        "max_seqlen_q": 3,
        "max_seqlen_k": 3,
        "softmax_scale": 0.3,
        "causal": True,
    }
    expected = plain_varlen(query, key, value, **options)
    torch.testing.assert_close(attend_varlen(query, key, value, **options), expected)


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_segments_of_a_tower_attend_within_themselves(lengths):
    generator = torch.Generator().manual_seed(0)
    states = [torch.randn(1, 2, sum(lengths), 8, generator=generator) for _ in range(3)]
    bounds = torch.tensor([0, *lengths]).cumsum(0).int()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "varlen_attn", documented_varlen)
        actual, _ = vision_varlen(
            torch.nn.Identity(), *states, None, scaling=0.5, cu_seq_lens_q=bounds, max_length_q=max(lengths)
        )
    padded = vision_attention(scaled_dot_product_attention)
    expected, _ = padded(torch.nn.Identity(), *states, None, scaling=0.5, cu_seq_lens_q=bounds)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_whole_model_agrees_with_the_padded_form(family, model_folder, kernel_on_a_cpu):
    bench = Bench.load(model_folder(family))
    shown = [["wide-1", "square-1"], ["small-2"]] if family in VISION_FAMILIES else [[], []]
    trees = [
        bench.tree([3] * (len(shown[0]) + 1), shown[0], [4, 1, 2], seed=1),
        bench.tree([5] * (len(shown[1]) + 1), shown[1], [3], seed=2),
    ]
    packed = bench.pack(trees)

    def log_probs_and_gradient():
        log_probs = bench.policy(packed, temperature=1.0).log_probs
        (log_probs * torch.linspace(-1.0, 1.0, len(log_probs))).sum().backward()
        return log_probs.detach(), take_gradients(bench.policy)

    expected = log_probs_and_gradient()
    use_tree_attention(bench.policy.model, "varlen")
    actual = log_probs_and_gradient()
    assert relative_difference(actual[0], expected[0]) < 1e-5
    assert relative_difference(actual[1], expected[1]) < 1e-5
