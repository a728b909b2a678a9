"""The attention implementations of the policy, registered with transformers."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import pad
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from rl_core.config.model import ModelConfig
from rl_core.families.registry import vision_of
from rl_core.models.attention_rules import (
    AttentionRules,
    Mask,
    attention_name,
    attention_names,
    read_mask,
    rules_of,
)
from rl_core.models.sequence_parallel import SequenceParallel
from rl_core.models.tree_attention import tree_sdpa, tree_varlen
from rl_core.models.tree_layout import TreeLayout
from rl_core.models.vision_tower import VISION_SDPA, check_vision_arguments
from rl_core.planning.gpu import Backend, attention_choice, attention_problems

AttentionFunction = Callable[..., tuple[torch.Tensor, None]]
TreeAttention = Callable[..., torch.Tensor]

# transformers passes the boundaries of a packed sequence only to implementations with "flash" in their name.
VISION_VARLEN = "varlen_in_flash_form"

# transformers builds a mask only for names with a mask function. These have none: no T x T mask exists.
# With "flash" in a name transformers would look for a package of its own.
_TREE_NAMES: dict[Backend, str] = {"sdpa": "tree", "varlen": "tree_varlen", "flash": "tree_varlen_of_package"}
_VISION_NAMES: dict[Backend, str] = {
    "sdpa": VISION_SDPA,
    "varlen": VISION_VARLEN,
    "flash": "flash_attention_2",
}

_HEAD_SIZE_MULTIPLE = 8  # the kernels load 16 bytes at a time


def attend_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    causal: bool,
    window_size: tuple[int, int] = (-1, -1),
) -> torch.Tensor:
    """Attention within runs, with the arguments of `flash_attn.flash_attn_varlen_func`: query [Q, H, D] and key and
    value [K, G, D], bfloat16 or float16 on a GPU, D <= 256 -> [Q, H, D]. Bounds are [runs + 1] int32.

    PyTorch's own kernels, which need no further package, are those of FlashAttention-2, with gradients, for NVIDIA GPUs
    from compute capability 8.0 on. A causal mask is aligned to the bottom right, as flash-attn's is: the last query of
    a run attends to the last key. A window is given as the numbers of keys before and after, -1 for all of them.
    """
    size = query.shape[-1]
    missing = -size % _HEAD_SIZE_MULTIPLE
    if missing:  # zeros change no score, and the values' zeros are cut off again
        query, key, value = (pad(states, (0, missing)) for states in (query, key, value))
    out = varlen_attn(
        query,
        key,
        value,
        cu_seq_q=cu_seqlens_q,
        cu_seq_k=cu_seqlens_k,
        max_q=max_seqlen_q,
        max_k=max_seqlen_k,
        scale=softmax_scale,
        window_size=(window_size[0], 0) if causal else window_size,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    assert isinstance(out, torch.Tensor), "no log-sum-exp was asked for"
    return out[..., :size]


def vision_varlen(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    *,
    scaling: float,
    cu_seq_lens_q: torch.Tensor,
    max_length_q: int,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Full attention within each segment of a packed sequence of a vision tower, with the signature that transformers
    calls: [1, H, S, D], all segments concatenated -> [1, S, H, D]. `cu_seq_lens_q`: [segments + 1] int32 on the device.
    """
    check_vision_arguments(module, attention_mask, others)
    out = attend_varlen(
        *(states[0].transpose(0, 1) for states in (query, key, value)),
        cu_seqlens_q=cu_seq_lens_q,
        cu_seqlens_k=cu_seq_lens_q,
        max_seqlen_q=max_length_q,
        max_seqlen_k=max_length_q,
        softmax_scale=scaling,
        causal=False,
    )
    return out[None], None


AttentionInterface.register(VISION_VARLEN, vision_varlen)


def attention_backend(config: ModelConfig) -> Backend:
    """What `model.attention` selects on this machine. Raises ValueError if it does not run here."""
    has_gpu = torch.cuda.is_available()
    for problem in attention_problems(config, has_gpu=has_gpu):
        raise ValueError(str(problem))
    return attention_choice(config, has_gpu=has_gpu).backend


def use_tree_attention(model: PreTrainedModel, backend: Backend) -> None:
    """Use tree attention in the language model, whose forward then needs the keyword argument `tree_layout`. The vision
    tower keeps ordinary attention, because images do not branch."""
    name = _TREE_NAMES[backend]
    register_tree_function(name, tree_attention(backend))
    set_attention(model, language=attention_name(name, model), vision=_VISION_NAMES[backend])


def tree_attention(backend: Backend) -> TreeAttention:
    """The attention over trees by this kernel, with the arguments of `rl_core.models.tree_attention.tree_sdpa`."""
    match backend:
        case "sdpa":
            return tree_sdpa
        case "varlen":
            return partial(tree_varlen, attend=attend_varlen)
        case "flash":
            from flash_attn import flash_attn_varlen_func  # type: ignore[import-not-found]  # on GPU machines only

            return partial(tree_varlen, attend=flash_attn_varlen_func)


def set_attention(model: PreTrainedModel, *, language: str, vision: str) -> None:
    """The names are those registered with transformers; `vision` is for a tower that takes all images in one sequence,
    and another one keeps transformers' own attention."""
    seeing = vision_of(model.config.model_type)
    vision = vision if seeing is not None and seeing.packs_images else "sdpa"
    names = {name: vision if name == "vision_config" else language for name in model.config.sub_configs}
    model.set_attn_implementation({"": language} | names)


def register_tree_function(name: str, attend: TreeAttention) -> None:
    """Register a tree attention with transformers under the two names of `attention_name`."""
    for registered in attention_names(name):
        AttentionInterface.register(registered, tree_function(attend))
    AttentionMaskInterface.register(attention_names(name)[1], read_mask)


def tree_function(attend: TreeAttention) -> AttentionFunction:
    """A tree attention with the signature that transformers calls."""

    def attention(
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Mask | None,
        *,
        scaling: float,
        dropout: float = 0.0,
        sliding_window: int | None = None,
        softcap: float | None = None,
        s_aux: torch.Tensor | None = None,
        tree_layout: TreeLayout | None = None,
        sequence_parallel: SequenceParallel | None = None,
        **others: Any,
    ) -> tuple[torch.Tensor, None]:
        """[1, heads, T, D] -> [1, T, heads, D]; with sequence parallelism T is this rank's slice. Raises ValueError if
        the layer asks for what tree attention has not."""
        if tree_layout is None:
            raise ValueError("tree attention needs `tree_layout`: call the policy with packed trees, or set 'sdpa'")
        rules = rules_of(
            module,
            mask=attention_mask,
            sliding_window=sliding_window,
            softcap=softcap,
            sinks=s_aux,
            dropout=dropout,
            others=others,
        )
        if rules.mask is not None:
            rules = replace(rules, mask=rules.mask.within(tree_layout.longest))
        width = value.shape[-1]
        if width < query.shape[-1]:  # zeros, which are cut off again
            value = pad(value, (0, query.shape[-1] - width))
        states = [part[0].transpose(0, 1) for part in (query, key, value)]
        if sequence_parallel is None:
            out = attend(*states, layout=tree_layout, scale=scaling, rules=rules)
        else:
            over_trees = partial(
                attend, layout=tree_layout, scale=scaling, rules=_of_own_heads(rules, sequence_parallel)
            )
            out = sequence_parallel.attend(*states, length=tree_layout.num_tokens, attend=over_trees)
        return out[None, ..., :width], None

    return attention


def _of_own_heads(rules: AttentionRules, parallel: SequenceParallel) -> AttentionRules:
    """The rules for the share of the heads that this rank computes over the whole sequence."""
    if rules.mask is not None and rules.mask.blocks is not None:  # they were made of a slice of the tokens
        raise ValueError(
            f"{rules.layer} asks for attention in both directions within images, which sequence parallelism has not: "
            f"set cluster.sequence_parallel_size=1"
        )
    return rules if rules.sinks is None else replace(rules, sinks=parallel.own_heads(rules.sinks))
