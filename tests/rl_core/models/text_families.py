"""Tiny random text models of many families of transformers, those of the registry among them, and the log-probs that
transformers itself computes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from rl_core.config.model import TinyModel
from rl_core.families import registry
from rl_core.models.loading import load_model
from rl_core.models.packing import TreeInput, pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel
from rl_core.types import Prompt
from tests.rl_core.models.builders import RenderedImages, model_config

WINDOW = 6
_TINY = TinyModel(type="tiny", hidden_size=32, intermediate_size=48, num_layers=2, num_heads=4, num_key_value_heads=2)
_IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_SIZES = {
    "vocab_size": 320,
    "hidden_size": _TINY.hidden_size,
    "intermediate_size": _TINY.intermediate_size,
    "num_hidden_layers": _TINY.num_layers,
    "num_attention_heads": _TINY.num_heads,
    "num_key_value_heads": _TINY.num_key_value_heads,
    "max_position_embeddings": 512,
}
_ALTERNATING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_ROUTED = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
}
_LATENT = {
    "q_lora_rank": None,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
}
_DELTA_RULE = {
    "num_hidden_layers": 5,
    "layer_types": [*["linear_attention"] * 3, "full_attention", "linear_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4,
}

_UNTRAINED: dict[str, dict[str, Any]] = {
    "gemma": {"head_dim": 8},
    "gpt_oss": {"head_dim": 8, **_ALTERNATING, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {**_EXPERTS, "shared_expert_intermediate_size": 32},
    "olmo3": _ALTERNATING,
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "mixtral": {"num_local_experts": 4, "sliding_window": WINDOW},
    "glm4_moe": {"head_dim": 8, **_ROUTED},
    "deepseek_v3": {**_ROUTED, **_LATENT},
    "llama4_text": {
        "head_dim": 8,
        "num_local_experts": 4,
        "intermediate_size_mlp": 48,
        "attention_chunk_size": WINDOW,
        "layer_types": ["chunked_attention", "full_attention"],
    },
    "cohere": {"logit_scale": 0.3},
    "cohere2": {"logit_scale": 0.3, **_ALTERNATING},
    "minicpm3": {**_LATENT, "q_lora_rank": 16, "dim_model_base": 8, "scale_depth": 1.4},
    "starcoder2": {"sliding_window": WINDOW},
    "nanochat": {"final_logit_softcapping": 3.0},
    "qwen3_5_text": {"head_dim": 16, **_DELTA_RULE},
    "qwen3_next": {"head_dim": 16, **_DELTA_RULE, **_EXPERTS, "shared_expert_intermediate_size": 32},
    "olmo_hybrid": {**_DELTA_RULE, "num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]},
}
TRAINED = {family.model_type: family for family in registry.FAMILIES.values() if family.vision is None}
FAMILIES = (*TRAINED, *_UNTRAINED)
"""The `model_type`s: those of the registry, and others that pass in the trainer alone."""


def tiny_config(model_type: str, **fields: Any) -> PreTrainedConfig:
    if model_type in TRAINED:
        own = TRAINED[model_type].tiny_fields(_TINY, vocab_size=_SIZES["vocab_size"])
        own |= {"sliding_window": WINDOW} if "sliding_window" in own else {}
    else:
        own = {"model_type": model_type, **_SIZES, **_UNTRAINED.get(model_type, {})}
    config: PreTrainedConfig = AutoConfig.for_model(**own | _IDS | fields)
    return config


def write_text_model(folder: Path, family: str, **fields: Any) -> Path:
    """Weights of a size at which attention and distributions are far from uniform, nothing is zero, and a state is kept
    over many tokens."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(tiny_config(family, **fields), dtype=torch.float32)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith(".A_log"):
                    parameter.uniform_(-4.0, -1.0)
                elif parameter.ndim > 1:
                    parameter.normal_(0.0, 1.3 / parameter.shape[-1] ** 0.5)
                else:
                    parameter.add_(torch.randn_like(parameter), alpha=0.2)
    model.save_pretrained(folder)
    return folder


def untouched(folder: Path) -> PreTrainedModel:
    """As transformers loads it, with its own attention."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    return model.eval()


def policy_of(folder: Path, **fields: object) -> PolicyModel:
    model = load_model(folder, model_config(folder, **fields))
    return PolicyModel(model, banned_token_ids=(), chunk_tokens=64)


def tree(prompt_length: int, response_lengths: Sequence[int], *, seed: int = 0) -> TreeInput:
    rng = np.random.default_rng(seed)
    ids = rng.integers(3, _SIZES["vocab_size"], prompt_length).astype(np.int32)
    texts = {"data_source": "test", "question": "", "text": "", "answer": ""}
    prompt = Prompt(uid=f"{seed}", token_ids=ids, engine_token_ids=ids, image_uids=(), videos=(), **texts)
    responses = [rng.integers(3, _SIZES["vocab_size"], length).astype(np.int32) for length in response_lengths]
    return TreeInput(prompt=prompt, responses=responses)


def packed_log_probs(policy: PolicyModel, trees: Sequence[TreeInput]) -> torch.Tensor:
    pixels = PixelCache(Path(policy.config.name_or_path), RenderedImages())
    packed = pack_trees(trees, pixels=pixels, model_config=policy.config, device=policy.device)
    return policy(packed, temperature=1.0).log_probs


def single_log_probs(model: PreTrainedModel, trees: Sequence[TreeInput]) -> torch.Tensor:
    """Each response alone behind its prompt."""
    found = []
    for tree in trees:
        for response in tree.responses:
            ids = torch.tensor([*tree.prompt.token_ids, *response], dtype=torch.int64)
            scores = model(input_ids=ids[None], use_cache=False).logits[0, :-1].float().log_softmax(-1)
            found.append(scores.gather(1, ids[1:, None])[len(tree.prompt.token_ids) - 1 :, 0])
    return torch.cat(found)


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """By name; the model is left without."""
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad(set_to_none=True)
    return found
