"""The attention of a model on a CPU: over trees without copies of prompts, and as products of matrices where trees and
images are small."""

from typing import Final

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel

from rl_core.models.attention import set_attention, tree_function
from rl_core.models.cpu.shared_prompt import tree_shared_prompt
from rl_core.models.cpu.short_tree import is_short, tree_products
from rl_core.models.tree_layout import TreeLayout
from rl_core.models.vision_attention import vision_attention

_LANGUAGE: Final = "tree_on_a_cpu"
_VISION: Final = "cpu_in_flash_form"

_LONGEST: Final = 64
"""Patches of a segment up to which products are faster on two cores. With 144, a single image takes longer."""


def use_cpu_attention(model: PreTrainedModel) -> None:
    """Use this attention in the language model, and in the vision tower if there is one."""
    set_attention(model, language=_LANGUAGE, vision=_VISION)


def attend_trees(query: torch.Tensor, *states: torch.Tensor, layout: TreeLayout, scale: float) -> torch.Tensor:
    """Arguments and result are those of `rl_core.models.tree_attention.tree_sdpa`."""
    form = tree_products if is_short(layout) else tree_shared_prompt
    return form(query, *states, layout=layout, scale=scale)


def attend_patches(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, scale: float) -> torch.Tensor:
    """[N, H, S, D] -> [N, H, S, D]. As for short trees, the kernel takes longer where segments are small."""
    attend = _products if query.shape[2] <= _LONGEST else scaled_dot_product_attention
    return attend(query, key, value, scale=scale)


def _products(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, scale: float) -> torch.Tensor:
    """[N, H, S, D] -> [N, H, S, D] by two products of all heads' matrices at once, in float32 at least."""
    precision = torch.promote_types(query.dtype, torch.float32)
    queries, keys, values = (states.to(precision).flatten(0, 1) for states in (query, key, value))
    out = torch.bmm(torch.bmm(queries * scale, keys.mT).softmax(-1), values)
    return out.view(query.shape).to(query.dtype)


AttentionInterface.register(_LANGUAGE, tree_function(attend_trees))
AttentionInterface.register(_VISION, vision_attention(attend_patches))
