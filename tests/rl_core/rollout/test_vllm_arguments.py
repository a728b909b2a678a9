"""The arguments that vLLM is started with."""

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from rl_core.config.model import LoraConfig
from rl_core.config.tolerances import AGREEMENT
from rl_core.config.training import RolloutConfig
from rl_core.distributed.place import RankPlace
from rl_core.distributed.ranks import WHOLE, GeneratorRanks
from rl_core.rollout.engine_spec import EngineSpec
from rl_core.rollout.vllm_arguments import cache_bytes_per_token, engine_arguments
from rl_core.rollout.vllm_process import prepare_process
from tests.rl_core.rollout.engines import build_folder


def small_arguments(folder: Path, *, ranks: GeneratorRanks = WHOLE, **changes: object):
    """The engine arguments of a small run."""
    prepare_process()
    settings = {
        "rollout": RolloutConfig(max_response_length=40, max_num_seqs=16),
        "dtype": "float32",
        "max_prompt_length": 60,
        "images_per_prompt": 2,
        "seed": 2**40 + 3,
    }
    return engine_arguments(EngineSpec(model=folder, **(settings | changes)), ranks=ranks)


def test_the_cpu_cache_holds_every_running_sequence_and_no_more(tiny_folders):
    # 100 tokens fill 4 blocks of 32. A token takes 2 layers x (key + value) x 1 head x 32 numbers of 4 bytes = 512.
    assert small_arguments(tiny_folders["qwen2_5_vl"]).kv_cache_memory_bytes == (1 + 16 * 4) * 32 * 512
    assert small_arguments(tiny_folders["qwen3_vl"], dtype="bfloat16").kv_cache_memory_bytes == (1 + 16 * 4) * 32 * 256


def test_ranks_that_hold_an_engine_together_share_its_cache(tiny_folders):
    """A single key/value head is on both ranks; of two heads each has one."""
    place = RankPlace(rank=1, size=4, ranks_per_node=4, meeting="tcp://127.0.0.1:1")
    ranks = GeneratorRanks(place=place, size=2, group=None)
    whole, part = small_arguments(tiny_folders["llama"]), small_arguments(tiny_folders["llama"], ranks=ranks)
    assert (whole.tensor_parallel_size, part.tensor_parallel_size) == (1, 2)
    assert part.kv_cache_memory_bytes == whole.kv_cache_memory_bytes
    config = AutoConfig.from_pretrained(tiny_folders["llama"])
    config.num_key_value_heads = 2
    assert cache_bytes_per_token(config, dtype="float32", ranks=1) == 2 * cache_bytes_per_token(
        config, dtype="float32", ranks=2
    )


def test_logits_are_float32_in_every_number_format(tiny_folders):
    configs = [small_arguments(tiny_folders["qwen3_vl"], dtype=dtype).create_model_config() for dtype in AGREEMENT]
    assert [config.dtype for config in configs] == [torch.float32, torch.bfloat16]
    assert {config.head_dtype for config in configs} == {torch.float32}


def test_the_configured_cache_is_the_upper_bound(tiny_folders):
    config = RolloutConfig(max_response_length=60_000, max_num_seqs=512, cpu_kv_cache_gib=2)
    assert small_arguments(tiny_folders["llama"], rollout=config).kv_cache_memory_bytes == 2 * 2**30


def test_a_whole_prompt_fits_into_one_forward(tiny_folders):
    config = RolloutConfig(max_response_length=4000, max_num_seqs=16)
    arguments = small_arguments(tiny_folders["llama"], rollout=config, max_prompt_length=9000)
    assert arguments.max_model_len == 13_000
    assert arguments.max_num_batched_tokens == 13_000
    assert arguments.enable_chunked_prefill is False


@pytest.mark.parametrize(("images", "limit"), [(0, 1), (1, 1), (3, 3)])
def test_a_vision_tower_is_built_even_for_prompts_without_images(images, limit, tiny_folders):
    arguments = small_arguments(tiny_folders["qwen2_vl"], images_per_prompt=images)
    assert arguments.limit_mm_per_prompt == {"image": limit, "video": 0}


def test_seeds_beyond_32_bits_are_folded(tiny_folders):
    assert small_arguments(tiny_folders["llama"]).seed == 3


@pytest.mark.parametrize(("setting", "eager"), [("auto", True), (True, True), (False, False)])
def test_on_a_cpu_nothing_is_compiled_unless_configured(setting, eager, tiny_folders):
    assert small_arguments(tiny_folders["llama"], rollout=RolloutConfig(enforce_eager=setting)).enforce_eager is eager


def test_vllm_prepares_adapters_of_the_trained_layers_alone(tmp_path):
    """And none of experts, for which a CPU has no kernel."""
    folder = build_folder(tmp_path, "qwen3_moe")
    lora = LoraConfig(rank=2, generator_weights="separate")
    assert small_arguments(folder, lora=lora).lora_target_modules == ["k_proj", "o_proj", "q_proj", "v_proj"]
    assert small_arguments(folder).lora_target_modules is None
