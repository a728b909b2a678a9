"""A state branches at the end of its prompt, exactly; a layer of which nobody knows how it would is refused by name."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import conv1d, silu
from transformers import AutoModelForCausalLM

from rl_core.models.policy import PolicyModel
from rl_core.models.sequence_parallel import SequenceParallel, use_sequence_parallel
from rl_core.models.tree_layout import TreeLayout, TreeSpans
from rl_core.models.tree_recurrence import tree_convolution, tree_rule, use_tree_recurrence
from tests.rl_core.models.test_text_families import assert_equal_passes
from tests.rl_core.models.text_families import policy_of, tiny_config, tree, untouched, write_text_model

HEADS, KEY, VALUE, TAPS = 2, 3, 4, 4
Lengths = tuple[int, list[int]]

lengths = st.lists(
    st.tuples(st.integers(1, 9), st.lists(st.integers(0, 7), min_size=1, max_size=4)), min_size=1, max_size=3
)
"""Prompts of fewer tokens than the convolution sees, responses without an input, and siblings of different lengths."""


def plain_convolution(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, activation: str):
    assert activation == "silu"
    taps = weight.shape[1]
    return silu(conv1d(hidden, weight[:, None], bias, padding=taps - 1, groups=len(weight))[..., : hidden.shape[2]])


def plain_rule(
    query, key, value, *, g, beta, use_qk_l2norm_in_kernel, initial_state=None, output_final_state=False, **_
):
    """Token by token: S = exp(g) S + beta k (v - exp(g) S k), and the output is S q (arXiv:2412.06464, equation 10)."""
    assert use_qk_l2norm_in_kernel
    query, key = (part / (part.square().sum(-1, keepdim=True) + 1e-6).sqrt() for part in (query, key))
    state = query.new_zeros(len(query), HEADS, KEY, VALUE) if initial_state is None else initial_state
    outputs = []
    for token in range(query.shape[1]):
        k, decayed = key[:, token, :, :, None], g[:, token].exp()[..., None, None] * state
        missing = value[:, token, :, None] - (k * decayed).sum(-2, keepdim=True)
        state = decayed + beta[:, token, :, None, None] * k * missing
        outputs.append((query[:, token, :, :, None] * state).sum(-2))
    return torch.stack(outputs, dim=1), state if output_final_state else None


def layout_of(drawn: Sequence[Lengths]) -> TreeLayout:
    spans = TreeSpans([prompt for prompt, _ in drawn], [responses for _, responses in drawn])
    return TreeLayout(spans, device=torch.device("cpu"))


def rows_of_sequences(drawn: Sequence[Lengths]) -> list[tuple[list[int], int]]:
    """For each prompt alone, and for each of its responses behind it: its packed tokens, and how many of them count."""
    found, begin = [], 0
    for prompt, responses in drawn:
        tokens = list(range(begin, begin + prompt))
        found.append((tokens, prompt))
        begin += prompt
        for response in responses:
            found.append((tokens + list(range(begin, begin + response)), response))
            begin += response
    return found


def assert_equal_with_gradients(found: torch.Tensor, expected: torch.Tensor, inputs: Sequence[torch.Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gradients = [torch.autograd.grad((of * weight).sum(), inputs, retain_graph=True) for of in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-9)


def random(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


@settings(max_examples=40)
@given(drawn=lengths, channels=st.integers(1, 3), taps=st.integers(2, TAPS + 1))
def test_a_convolution_over_trees_is_that_of_each_sequence(drawn, channels, taps):
    layout = layout_of(drawn)
    hidden, weight, bias = (
        random(1, channels, layout.num_tokens, seed=0),
        random(channels, taps, seed=1),
        random(channels, seed=2),
    )
    found = tree_convolution(plain_convolution)(hidden, weight, bias, activation="silu", tree_layout=layout)
    expected = torch.cat(
        [
            plain_convolution(hidden[..., rows], weight, bias, activation="silu")[..., len(rows) - count :]
            for rows, count in rows_of_sequences(drawn)
        ],
        dim=2,
    )
    assert_equal_with_gradients(found, expected, [hidden, weight, bias])


@settings(max_examples=15)
@given(drawn=lengths)
def test_the_rule_over_trees_is_that_of_each_sequence(drawn):
    layout = layout_of(drawn)
    count = layout.num_tokens
    states = [random(1, count, HEADS, size, seed=seed) for seed, size in enumerate((KEY, KEY, VALUE))]
    raw = [random(1, count, HEADS, seed=seed) for seed in (3, 4)]
    gates = {"g": -raw[0].square(), "beta": raw[1].sigmoid(), "use_qk_l2norm_in_kernel": True}
    found, state = tree_rule(plain_rule)(*states, **gates, tree_layout=layout)
    assert state is None
    expected = torch.cat(
        [
            plain_rule(
                *(part[:, rows] for part in states),
                **{name: part[:, rows] if name in ("g", "beta") else part for name, part in gates.items()},
            )[0][:, len(rows) - number :]
            for rows, number in rows_of_sequences(drawn)
        ],
        dim=1,
    )
    assert_equal_with_gradients(found, expected, [*states, *raw])


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> tuple[PolicyModel, torch.nn.Module]:
    folder = write_text_model(tmp_path_factory.mktemp("model"), "qwen3_5_text")
    return policy_of(folder), untouched(folder)


@settings(max_examples=8)
@given(
    drawn=st.lists(
        st.tuples(st.integers(1, 70), st.lists(st.integers(1, 70), min_size=1, max_size=3), st.integers(0, 9)),
        min_size=1,
        max_size=3,
    )
)
def test_packed_trees_of_any_lengths_are_single_sequences(pair, drawn):
    """Of more tokens than the 64 that the rule of transformers computes at a time, and of fewer than the convolution
    sees."""
    policy, reference = pair
    assert_equal_passes(policy, reference, [tree(prompt, own, seed=seed) for prompt, own, seed in drawn])


def test_without_the_trees_a_state_is_not_carried_on(pair):
    policy, _ = pair
    policy.model.set_attn_implementation("eager")
    try:
        with pytest.raises(ValueError, match="needs `tree_layout`"):
            policy.model(input_ids=torch.ones(1, 3, dtype=torch.int64), use_cache=False)
    finally:
        policy.model.set_attn_implementation("tree")


def test_ranks_cannot_share_its_sequences(pair):
    policy, _ = pair
    with pytest.raises(ValueError, match=r"cluster.sequence_parallel_size: .* state from token to token.*set it to 1"):
        use_sequence_parallel(policy.model, SequenceParallel(group=None, rank=0, size=2))


@pytest.mark.parametrize(
    ("family", "layer", "fields"),
    [
        ("mamba", "MambaBlock of layer 0", {}),
        ("mamba2", "Mamba2Block of layer 0", {"num_heads": 4, "head_dim": 16}),
        ("falcon_mamba", "FalconMambaBlock of layer 0", {}),
        ("jamba", "JambaMambaDecoderLayer of layer 0", {}),
        ("bamba", "BambaDecoderLayer of layer 0", {"mamba_n_heads": 4, "mamba_d_head": 16}),
        ("falcon_h1", "FalconH1Mixer of layer 0", {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_ssm": 64}),
        ("nemotron_h", "NemotronHBlock of layer 0", {"layers_block_type": ["mamba", "attention"]}),
        ("recurrent_gemma", "RecurrentGemmaDecoderLayer of layer 0", {"lru_width": 32}),
        ("rwkv", "RwkvBlock of layer 0", {}),
        ("lfm2", "Lfm2DecoderLayer of layer 0", {"layer_types": ["conv", "full_attention"]}),
        ("minimax", "MiniMaxDecoderLayer of layer 0", {"layer_types": ["linear_attention", "full_attention"]}),
        ("kimi_linear", "KimiLinearDecoderLayer of layer 0", {"layer_types": ["linear_attention", "full_attention"]}),
    ],
)
def test_a_state_that_is_not_known_to_branch_is_refused_by_name(family, layer, fields):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(tiny_config(family, **fields))
    with pytest.raises(ValueError, match=f"{layer} of a {family} model carries a state .*another family"):
        use_tree_recurrence(model)
