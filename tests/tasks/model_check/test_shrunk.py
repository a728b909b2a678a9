"""The small model of a real config shows every kind of layer, and changes nothing else."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig

from tasks.model_check.shrunk import kept_layers, shrunk

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


@given(
    period=st.lists(st.sampled_from([FULL, SLIDING, LINEAR]), min_size=1, max_size=6),
    repeated=st.integers(2, 12),
    rest=st.integers(0, 5),
)
def test_one_period_and_a_layer_more_are_kept(period, repeated, rest):
    kinds = (period * (repeated + 1))[: len(period) * repeated + min(rest, len(period) - 1)]
    kept = kept_layers({"num_hidden_layers": len(kinds), "layer_types": kinds})
    assert kept <= len(period) + 1
    assert {*kinds[:kept]} == {*kinds}
    assert {*pairwise(kinds)} == {*pairwise(kinds[:kept])}


@pytest.mark.parametrize(
    ("kinds", "dense", "kept"),
    [
        ([FULL] * 64, 0, 2),
        (([SLIDING] * 5 + [FULL]) * 8, 0, 7),
        (([LINEAR] * 3 + [FULL]) * 12, 0, 5),
        ([FULL] * 61, 3, 5),
        ([FULL], 0, 1),
        ([FULL, SLIDING, FULL, FULL], 0, 4),
    ],
)
def test_layers_of_published_configs(kinds, dense, kept):
    text = {"num_hidden_layers": len(kinds), "layer_types": kinds, "first_k_dense_replace": dense}
    assert kept_layers(text) == kept


def test_layers_that_take_keys_of_others_have_those_others():
    """As in the small models of Gemma 4, whose last layer has to be of another size than the others."""
    kinds = ([SLIDING] * 4 + [FULL]) * 7
    whole = AutoConfig.for_model("gemma4_text", num_hidden_layers=35, layer_types=kinds, num_kv_shared_layers=20)
    small = shrunk(whole)
    assert (small.layer_types, small.num_kv_shared_layers) == (kinds[:10], 5)
    assert [layer.head_dim for layer in small.per_layer_config] == ([256] * 4 + [512]) * 2


def test_no_layer_becomes_another_than_it_is():
    kinds = ([SLIDING] * 5 + [FULL]) * 10
    small = shrunk(AutoConfig.for_model("gemma4_text", num_hidden_layers=60, layer_types=kinds))
    assert small.layer_types == kinds[:6]
    assert [layer.head_dim for layer in small.per_layer_config] == [256] * 5 + [512]


def test_widths_flags_and_what_names_layers_are_kept():
    whole = AutoConfig.for_model("qwen2_5_vl")
    small = shrunk(whole)
    text, small_text = whole.get_text_config(), small.get_text_config()
    assert (small_text.num_hidden_layers, small.vision_config.depth) == (2, 2)
    assert len(small_text.layer_types) == 2
    assert small.vision_config.fullatt_block_indexes == [1]
    changed = {name for name, value in text.to_dict().items() if small_text.to_dict()[name] != value}
    assert changed == {"num_hidden_layers", "layer_types"}
    assert whole.vision_config.depth == 32, "the given config is left alone"


@pytest.mark.parametrize(("model_type", "experts", "chosen"), [("qwen3_moe", 128, 8), ("mixtral", 8, 2)])
def test_twice_as_many_experts_as_a_token_goes_through_are_kept(model_type, experts, chosen):
    whole = AutoConfig.for_model(model_type)
    small = shrunk(whole)
    assert (whole.num_experts, whole.num_experts_per_tok) == (experts, chosen)
    assert (small.num_experts, small.num_experts_per_tok) == (2 * chosen, chosen)


def test_experts_in_groups_are_all_kept():
    whole = AutoConfig.for_model("deepseek_v3", num_hidden_layers=5)
    assert shrunk(whole).n_routed_experts == whole.n_routed_experts > 2 * whole.num_experts_per_tok


def test_patches_are_merged_after_a_block_that_is_left():
    whole = AutoConfig.for_model("minicpmv4_6")
    assert (whole.insert_layer_id, whole.vision_config.num_hidden_layers) == (6, 12)
    small = shrunk(whole)
    assert (small.insert_layer_id, small.vision_config.num_hidden_layers) == (1, 2)
    assert small.vision_config.insert_layer_id == 1
