"""The logits of packed trees are those that the model's own class computes from the same hidden states."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from rl_core.models.own_logits import body_of, is_head_alone, own_logits
from tests.rl_core.models.text_families import FAMILIES, tiny_config

WITH_A_RULE = {"gemma2", "gemma4_text", "granite", "cohere", "cohere2", "minicpm3", "nanochat"}
"""Those that cap or scale logits, or divide hidden states."""


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_rule_is_the_models_own(family):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(tiny_config(family)).eval()
    with torch.no_grad():
        model.get_output_embeddings().weight.normal_()  # so that a cap or scale matters
        ids = torch.randint(3, 100, (1, 9))
        hidden = body_of(model)(input_ids=ids).last_hidden_state[0]
        expected = model(input_ids=ids).logits[0]
        torch.testing.assert_close(own_logits(model, hidden), expected, rtol=0, atol=1e-5)
        alone = model.get_output_embeddings()(hidden)
        assert is_head_alone(model) == (family not in WITH_A_RULE) == torch.allclose(alone, expected, atol=1e-5)


def test_gradients_go_through_the_rule():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(tiny_config("gemma2"))
    ids = torch.randint(3, 100, (1, 9))
    weight = torch.randn(9, model.config.vocab_size)
    found = []
    for logits in (
        model(input_ids=ids).logits[0],
        own_logits(model, body_of(model)(input_ids=ids).last_hidden_state[0]),
    ):
        found.append(torch.autograd.grad((logits * weight).sum(), list(model.parameters())))
    torch.testing.assert_close(found[1], found[0])


def test_a_class_with_another_head_is_refused_by_name():
    model = AutoModelForCausalLM.from_config(tiny_config("bert", is_decoder=True))
    with pytest.raises(ValueError, match="BertLMHeadModel does not call its output embedding"):
        is_head_alone(model)
