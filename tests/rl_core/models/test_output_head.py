"""Log-probs and entropy of the output head, against their definitions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rl_core.models.output_head import BANNED_LOGIT_BIAS, EntropyMode, HeadRows, PolicyOutput, token_log_probs

ROWS, WIDTH, VOCABULARY = 13, 6, 11
TARGETS = torch.randint(0, VOCABULARY, (ROWS,), generator=torch.Generator().manual_seed(2))


def run(
    chunk_tokens: int, *, temperature: float = 0.7, entropy: EntropyMode = "value", with_reference: bool = False
) -> tuple[PolicyOutput, nn.Linear, torch.Tensor]:
    rows = make_rows(torch.Generator().manual_seed(0))
    output = token_log_probs(
        rows,
        targets=TARGETS,
        temperature=temperature,
        entropy=entropy,
        chunk_tokens=chunk_tokens,
        reference=make_rows(torch.Generator().manual_seed(1)) if with_reference else None,
    )
    return output, rows.head, rows.hidden


def make_rows(generator: torch.Generator) -> HeadRows:
    hidden = torch.randn(ROWS, WIDTH, generator=generator, requires_grad=True)
    head = nn.Linear(WIDTH, VOCABULARY, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.randn(VOCABULARY, WIDTH, generator=generator))
    bias = torch.zeros(VOCABULARY)
    bias[[2, 7]] = BANNED_LOGIT_BIAS
    return HeadRows(hidden=hidden, head=head, logit_bias=bias)


@settings(deadline=None)
@given(chunk_tokens=st.integers(1, ROWS + 1))
def test_chunks_change_neither_values_nor_gradients(chunk_tokens):
    whole, whole_head, whole_hidden = run(ROWS)
    output, head, hidden = run(chunk_tokens)
    torch.testing.assert_close(output.log_probs, whole.log_probs)
    torch.testing.assert_close(output.entropy, whole.entropy)
    weight = torch.arange(ROWS) - 5.0
    (output.log_probs * weight).sum().backward()
    (whole.log_probs * weight).sum().backward()
    torch.testing.assert_close(head.weight.grad, whole_head.weight.grad)
    torch.testing.assert_close(hidden.grad, whole_hidden.grad)


def test_log_probs_are_those_of_the_banned_and_tempered_distribution():
    output, head, hidden = run(4, temperature=0.5)
    probabilities = torch.softmax(head(hidden).double() / 0.5, dim=-1)
    probabilities[:, [2, 7]] *= torch.tensor(BANNED_LOGIT_BIAS / 0.5, dtype=torch.float64).exp()
    probabilities /= probabilities.sum(-1, keepdim=True)
    expected = probabilities[torch.arange(ROWS), TARGETS].log()
    torch.testing.assert_close(output.log_probs.double(), expected, rtol=1e-5, atol=1e-5)
    entropy = -(probabilities * probabilities.clamp_min(1e-300).log()).sum(-1)
    assert output.entropy is not None
    torch.testing.assert_close(output.entropy.double(), entropy, rtol=1e-5, atol=1e-5)


def test_entropy_is_made_on_request_and_carries_no_gradient():
    assert run(ROWS, entropy="none")[0].entropy is None
    entropy = run(4)[0].entropy
    assert entropy is not None and not entropy.requires_grad


@pytest.mark.parametrize("chunk_tokens", [4, ROWS])
def test_the_gradient_of_the_entropy_is_that_of_its_definition(chunk_tokens):
    output, head, hidden = run(chunk_tokens, entropy="gradient")
    assert output.entropy is not None
    output.entropy.sum().backward()
    bias = torch.zeros(VOCABULARY)
    bias[[2, 7]] = BANNED_LOGIT_BIAS
    logits = (hidden @ head.weight.T + bias) / 0.7
    expected = torch.autograd.grad(torch.distributions.Categorical(logits=logits).entropy().sum(), head.weight)[0]
    torch.testing.assert_close(head.weight.grad, expected, rtol=1e-4, atol=1e-5)


def test_logits_of_all_rows_never_exist_at_once(monkeypatch):
    sizes = []
    forward = nn.Linear.forward

    def recorded(self, rows):
        sizes.append(len(rows))
        return forward(self, rows)

    monkeypatch.setattr(nn.Linear, "forward", recorded)
    output, _, _ = run(5)
    output.log_probs.sum().backward()
    assert max(sizes) == 5 and sum(sizes) == 2 * ROWS  # once forward, once again in the backward pass


@pytest.mark.parametrize("chunk_tokens", [4, ROWS])
def test_the_full_kl_and_its_gradient_are_those_of_the_definition(chunk_tokens):
    output, head, hidden = run(chunk_tokens, with_reference=True)
    assert output.full_kl is not None
    output.full_kl.sum().backward()
    reference = make_rows(torch.Generator().manual_seed(1))
    logits = (hidden @ head.weight.T + reference.logit_bias) / 0.7
    ref_logits = (reference.hidden @ reference.head.weight.T + reference.logit_bias).detach() / 0.7
    expected = torch.distributions.kl_divergence(
        torch.distributions.Categorical(logits=logits), torch.distributions.Categorical(logits=ref_logits)
    )
    torch.testing.assert_close(output.full_kl, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        head.weight.grad, torch.autograd.grad(expected.sum(), head.weight)[0], rtol=1e-4, atol=1e-5
    )


def test_no_gradient_flows_to_the_reference():
    policy, reference = make_rows(torch.Generator().manual_seed(0)), make_rows(torch.Generator().manual_seed(1))
    targets = torch.zeros(ROWS, dtype=torch.int64)
    output = token_log_probs(
        policy, targets=targets, temperature=1.0, entropy="none", chunk_tokens=4, reference=reference
    )
    output.full_kl.sum().backward()
    assert reference.head.weight.grad is None and reference.hidden.grad is None
