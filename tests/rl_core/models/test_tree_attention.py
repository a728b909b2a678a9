"""Every form of tree attention against attention with the full mask, gradients included."""

from functools import partial
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from rl_core.models import tree_attention
from rl_core.models.attention_rules import AttentionRules, Mask
from rl_core.models.cpu.shared_prompt import tree_shared_prompt
from rl_core.models.cpu.short_tree import tree_products
from rl_core.models.tree_attention import tree_sdpa, tree_varlen
from rl_core.models.tree_layout import TreeLayout, TreeSpans
from tests.rl_core.models.builders import varlen_attention

NO_MASK = Mask()
HEADS, KEY_HEADS, HEAD_SIZE = 4, 2, 8
SCALE = 0.3


class Token(NamedTuple):
    tree: int
    response: int | None
    place: int  # in its sequence


def tokens_of(prompts: list[int], responses: list[list[int]]) -> list[Token]:
    tokens: list[Token] = []
    for tree, (prompt, inputs) in enumerate(zip(prompts, responses, strict=True)):
        tokens += [Token(tree, None, place) for place in range(prompt)]
        for number, length in enumerate(inputs):
            tokens += [Token(tree, number, prompt + place) for place in range(length)]
    return tokens


def full_mask(prompts: list[int], responses: list[list[int]], rule: Mask = NO_MASK) -> torch.Tensor:
    """[T, T] bool, written from the definition: a token sees its own branch up to itself, and its prompt; of these what
    is in its window and chunk, and its own block."""
    tokens = tokens_of(prompts, responses)
    mask = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    for row, query in enumerate(tokens):
        for column, key in enumerate(tokens):
            sequence = key.tree == query.tree and key.response in (None, query.response)
            near = rule.window is None or key.place > query.place - rule.window
            near &= rule.chunk is None or key.place // rule.chunk == query.place // rule.chunk
            block = rule.blocks is not None and int(rule.blocks[0, row]) == int(rule.blocks[0, column]) >= 0
            earlier = key.place <= query.place
            seen = (earlier or block) and near if rule.blocks_in_window else (earlier and near) or block
            mask[row, column] = sequence and seen
    return mask


@st.composite
def masks(draw: st.DrawFn, prompts: list[int], responses: list[list[int]]) -> Mask | None:
    """Windows and chunks of any size next to that of the sequences; blocks of neighbours within prompts."""
    size = st.none() | st.integers(1, 13)
    blocks, number = torch.full((1, sum(prompts) + sum(map(sum, responses))), -1), 0
    if draw(st.booleans()):
        tokens = tokens_of(prompts, responses)
        for begin in draw(st.lists(st.integers(0, len(tokens) - 1), max_size=3)):
            own = [
                place
                for place in range(begin, min(begin + 3, len(tokens)))
                if tokens[place][:2] == (tokens[begin].tree, None) and blocks[0, place] < 0
            ]
            blocks[0, own], number = number, number + 1
    mask = Mask(
        window=draw(size),
        chunk=draw(size),
        blocks=blocks if number else None,
        blocks_in_window=draw(st.booleans()),
    )
    return mask.within(max(prompts) + max(map(max, responses)))


def by_scores(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, rules: AttentionRules
) -> torch.Tensor:
    """[T, H, D], written from the definition."""
    key, value = (part.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for part in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, key) * SCALE
    if rules.softcap is not None:
        scores = torch.tanh(scores / rules.softcap) * rules.softcap
    scores = scores.masked_fill(~mask, float("-inf"))
    if rules.sinks is not None:
        scores = torch.cat([scores, rules.sinks[:, None, None].expand(-1, len(mask), 1)], dim=-1)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., : len(mask)], value)


trees = st.lists(
    st.tuples(st.integers(1, 6), st.lists(st.integers(0, 5), min_size=1, max_size=4)), min_size=1, max_size=3
)


def sdpa_as_on_cuda(*args, **options) -> torch.Tensor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_attention, "_needs_every_head", lambda query, mask: mask is not None)
        return tree_sdpa(*args, **options)


FORMS = {
    "shared prompt": tree_shared_prompt,
    "products": tree_products,
    "sdpa": tree_sdpa,
    "sdpa as on CUDA": sdpa_as_on_cuda,
    "varlen": partial(tree_varlen, attend=varlen_attention),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@settings(max_examples=30)
@given(drawn=trees, key_heads=st.sampled_from([KEY_HEADS, HEADS]))
def test_tree_attention_is_attention_with_the_full_mask(form, drawn, key_heads):
    prompts, responses = [prompt for prompt, _ in drawn], [inputs for _, inputs in drawn]
    mask = full_mask(prompts, responses)
    layout = TreeLayout(TreeSpans(prompts, responses), device=torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    shapes = [(len(mask), heads, HEAD_SIZE) for heads in (HEADS, key_heads, key_heads)]
    states = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]
    weight = torch.randn(shapes[0], generator=generator, dtype=torch.float64)

    expected = scaled_dot_product_attention(
        *(tensor.transpose(0, 1)[None] for tensor in states), attn_mask=mask, scale=SCALE, enable_gqa=True
    )[0].transpose(0, 1)
    actual = form(*states, layout=layout, scale=SCALE)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    expected_gradients = torch.autograd.grad((expected * weight).sum(), states)
    actual_gradients = torch.autograd.grad((actual * weight).sum(), states)
    torch.testing.assert_close(actual_gradients, expected_gradients, rtol=1e-10, atol=1e-10)


KNOWN = {
    "shared prompt": {"window", "chunk", "blocks", "sinks"},
    "products": {"window", "chunk", "blocks", "sinks", "softcap"},
    "sdpa": {"window", "chunk", "blocks", "sinks", "softcap"},
    "sdpa as on CUDA": {"window", "chunk", "blocks"},
    "varlen": {"window"},
}


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=60)
@given(drawn=trees, data=st.data(), key_heads=st.sampled_from([KEY_HEADS, HEADS]))
def test_every_form_obeys_the_rules_that_it_knows(name, drawn, data, key_heads):
    prompts, responses = [prompt for prompt, _ in drawn], [inputs for _, inputs in drawn]
    layout = TreeLayout(TreeSpans(prompts, responses), device=torch.device("cpu"))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 3)))
    mask = data.draw(masks(prompts, responses))
    mask = mask and mask._replace(**{rule: None for rule in ("chunk", "blocks") if rule not in KNOWN[name]})
    softcap = data.draw(st.sampled_from([None, 0.5])) if "softcap" in KNOWN[name] else None
    sinks = None
    if "sinks" in KNOWN[name] and data.draw(st.booleans()):
        sinks = torch.randn(HEADS, generator=generator, dtype=torch.float64, requires_grad=True)
    rules = AttentionRules(mask=mask, softcap=softcap, sinks=sinks)
    shapes = [(layout.num_tokens, heads, HEAD_SIZE) for heads in (HEADS, key_heads, key_heads)]
    states = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]
    weight = torch.randn(shapes[0], generator=generator, dtype=torch.float64)

    expected = by_scores(*states, full_mask(prompts, responses, mask or NO_MASK), rules)
    actual = FORMS[name](*states, layout=layout, scale=SCALE, rules=rules)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    leaves = states if sinks is None else [*states, sinks]
    torch.testing.assert_close(
        torch.autograd.grad((actual * weight).sum(), leaves),
        torch.autograd.grad((expected * weight).sum(), leaves),
        rtol=1e-10,
        atol=1e-10,
    )


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (AttentionRules(layer="Toy of layer 2", softcap=5.0), r"Toy of layer 2 asks for a soft cap .*attention=sdpa"),
        (AttentionRules(sinks=torch.zeros(HEADS)), "sinks"),
        (AttentionRules(mask=Mask(chunk=2)), "chunks"),
        (AttentionRules(mask=Mask(window=2, blocks=torch.zeros(1, 5))), "both directions within images"),
    ],
)
def test_kernels_of_packed_sequences_refuse_what_they_do_not_have(rules, words):
    layout = TreeLayout(TreeSpans([3], [[2]]), device=torch.device("cpu"))
    states = [torch.zeros(5, HEADS, HEAD_SIZE)] * 3
    with pytest.raises(ValueError, match=words):
        FORMS["varlen"](*states, layout=layout, scale=SCALE, rules=rules)


def test_the_longest_sequence_decides_whether_a_window_matters():
    layout = TreeLayout(TreeSpans([5, 9], [[7, 1], [2]]), device=torch.device("cpu"))
    assert layout.longest == 12
    assert Mask(window=12, chunk=12).within(12) is None
    assert Mask(window=11, chunk=12).within(12) == Mask(window=11)
    assert TreeLayout(TreeSpans([5, 9], [[0], [0]]), device=torch.device("cpu")).longest == 9
