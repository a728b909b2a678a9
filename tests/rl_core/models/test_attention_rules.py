"""What a layer asks of its attention is obeyed or refused by name, and nothing of it is lost."""

import pytest
import torch
from transformers import masking_utils as stock

from rl_core.models.attention_rules import Mask, attention_name, read_mask, rules_of
from rl_core.models.loading import load_model
from tests.rl_core.models.builders import FAMILIES, model_config
from tests.rl_core.models.text_families import policy_of, tiny_config, write_text_model

BLOCKS = torch.tensor([[-1, 0, 0, -1, 1, 1]])


class ToyAttention(torch.nn.Module):
    layer_idx = 3


def rules(module: torch.nn.Module | None = None, **arguments: object):
    known = {"mask": None, "sliding_window": None, "softcap": None, "sinks": None, "dropout": 0.0}
    others = {name: value for name, value in arguments.items() if name not in known}
    given = known | {name: value for name, value in arguments.items() if name in known}
    return rules_of(module or ToyAttention(), others=others, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [False, 0.0, 7, torch.ones(2, 3)])
def test_an_argument_that_is_not_known_is_an_error_that_names_layer_and_argument(value):
    with pytest.raises(ValueError, match=r"ToyAttention of layer 3 .*made_up=.*attention_rules\.py"):
        rules(made_up=value)
    assert rules(made_up=None, use_cache=False, position_ids=torch.arange(3)) == rules()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dropout": 0.1}, r"layer 3 has attention dropout \(0\.1\)"),
        ({"mask": torch.zeros(1, 1, 4, 4)}, r"layer 3 brings an attention mask .*\(1, 1, 4, 4\)"),
        ({"mask": Mask(window=5), "sliding_window": 4}, "window of 4, but its mask one of 5"),
    ],
)
def test_attention_that_trees_cannot_have_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        rules(**arguments)


def test_a_layer_that_looks_ahead_is_refused():
    module = ToyAttention()
    module.is_causal = False
    with pytest.raises(ValueError, match="both directions"):
        rules(module)


@pytest.mark.parametrize(
    ("function", "mask"),
    [
        (stock.causal_mask_function, None),
        (stock.and_masks(stock.causal_mask_function, stock.packed_sequence_mask_function(torch.zeros(1, 6))), None),
        (stock.sliding_window_causal_mask_function(4), Mask(window=4)),
        (stock.chunked_causal_mask_function(4, torch.zeros(1)), Mask(chunk=4)),
        (stock.or_masks(stock.causal_mask_function, stock.blockwise_overlay(BLOCKS)), Mask(blocks=BLOCKS)),
        (
            stock.or_masks(stock.sliding_window_causal_mask_function(4), stock.blockwise_overlay(BLOCKS)),
            Mask(window=4, blocks=BLOCKS),
        ),
        (
            stock.and_masks(
                stock.or_masks(stock.causal_mask_function, stock.blockwise_overlay(BLOCKS)),
                stock.sliding_window_overlay(4),
            ),
            Mask(window=4, blocks=BLOCKS, blocks_in_window=True),
        ),
    ],
)
def test_masks_are_read_from_the_functions_of_transformers(function, mask):
    assert read_mask(mask_function=function, attention_mask=None, config=tiny_config("llama")) == mask


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda *_: True, "a llama model masks its attention by .*lambda"),
        (stock.bidirectional_mask_function, "bidirectional_mask_function"),
        (stock.sliding_window_bidirectional_mask_function(4), "sliding_window_bidirectional_overlay"),
        (stock.sliding_window_overlay(4), "both directions"),
        (stock.blockwise_overlay(BLOCKS), "blockwise_overlay"),
        (stock.and_masks(stock.causal_mask_function, stock.blockwise_overlay(BLOCKS)), "blockwise_overlay"),
        (stock.and_masks(*[stock.sliding_window_causal_mask_function(4)] * 2), "two masks with window"),
    ],
)
def test_a_mask_that_is_not_known_is_an_error(function, words):
    with pytest.raises(ValueError, match=words):
        read_mask(mask_function=function, attention_mask=None, config=tiny_config("llama"))


@pytest.mark.parametrize("family", FAMILIES)
def test_models_that_see_all_tokens_before_build_no_masks(family, model_folder):
    model = load_model(model_folder(family), model_config(model_folder(family)))
    assert attention_name("tree", model) == "tree"


@pytest.mark.parametrize("family", ["gemma3_text", "mistral", "llama4_text", "gpt_oss"])
def test_models_with_masks_are_asked_for_them(family, tmp_path):
    policy = policy_of(write_text_model(tmp_path, family))
    assert attention_name("tree", policy.model) == "tree_with_mask"
