"""What takes the place of transformers' own layers in a model on a CPU: attention over trees without copies of prompts,
and as products of matrices where trees and images are small; and layers with backward passes written by hand.

They hold the same parameter objects under the same names, so checkpoints, sharding and adapters are not affected.
"""

import inspect
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb
from transformers.models.qwen2_vl.modeling_qwen2_vl import apply_rotary_pos_emb_vision

from rl_core.models.attention import register_tree_function, set_attention
from rl_core.models.attention_rules import NO_RULES, AttentionRules, attention_name
from rl_core.models.cpu.shared_prompt import tree_shared_prompt
from rl_core.models.cpu.short_tree import is_short, tree_products
from rl_core.models.tree_layout import TreeLayout
from rl_core.models.vision_tower import vision_attention

_LANGUAGE: Final = "tree_on_a_cpu"
_VISION: Final = "cpu_in_flash_form"

_LONGEST: Final = 64
"""Patches of a segment up to which products are faster on two cores. With 144, a single image takes longer."""

Rotation = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def use_cpu_layers(model: PreTrainedModel) -> None:
    """Replace attention and, in float32, RMS norms and the rotation of queries and keys."""
    set_attention(model, language=attention_name(_LANGUAGE, model), vision=_VISION)
    for parent in list(model.modules()):
        use_faster_rotary(parent)
        for name, child in list(parent.named_children()):
            if _is_float32_rms_norm(child):
                setattr(parent, name, RMSNorm(child.weight, eps=child.variance_epsilon))


def _is_float32_rms_norm(module: nn.Module) -> bool:
    if not _is_same_code(type(module).forward, LlamaRMSNorm.forward):  # others add 1 to the weight, or round elsewhere
        return False
    return isinstance(module.weight, nn.Parameter) and module.weight.dtype == torch.float32


def _is_same_code(function: Any, proven: Any) -> bool:
    """Whether two functions of transformers do the same, under whatever name: code, defaults and the functions that
    they call. A replacement is proven for one of them, and for no other that has only its name."""
    first, second = inspect.unwrap(function), inspect.unwrap(proven)
    if not isinstance(first, FunctionType) or not isinstance(second, FunctionType):
        return first is second
    if _code_of(first) != _code_of(second) or first.__defaults__ != second.__defaults__:
        return False
    called = set(first.__code__.co_names) & {*first.__globals__, *second.__globals__}
    return all(_is_same_code(*(part.__globals__.get(name) for part in (first, second))) for name in called)


def _code_of(function: FunctionType) -> tuple[Any, ...]:
    code = function.__code__
    return code.co_code, code.co_names, [constant for constant in code.co_consts if constant != function.__doc__]


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension (Zhang and Sennrich 2019, arXiv:1910.07467, equation 4)."""

    def __init__(self, weight: nn.Parameter, *, eps: float) -> None:
        super().__init__()
        self.weight = weight
        self.variance_epsilon = eps

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[..., width] -> [..., width]."""
        normalised: torch.Tensor = _RMSNormFunction.apply(  # type: ignore[no-untyped-call]
            hidden, self.weight, self.variance_epsilon
        )
        return normalised


class _RMSNormFunction(torch.autograd.Function):
    """Forward and backward passes written by hand, with half the memory traffic of the plain formula under autograd."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        mean_square = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True).square_().div_(hidden.shape[-1])
        inverse_rms = mean_square.add_(eps).rsqrt_()
        ctx.save_for_backward(hidden, weight, inverse_rms)
        normalised: torch.Tensor = hidden * inverse_rms
        return normalised.mul_(weight)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        hidden, weight, inverse_rms = ctx.saved_tensors
        product = (grad * hidden).flatten(0, -2)
        grad_weight = torch.mv(product.t(), inverse_rms.flatten())
        # The derivative of the norm itself: - x / (width * rms^3) * sum(grad * weight * x).
        along = torch.mv(product, weight).view_as(inverse_rms) * inverse_rms.pow(3) / -hidden.shape[-1]
        return (grad * weight).mul_(inverse_rms).addcmul_(hidden, along), grad_weight, None


def use_faster_rotary(layer: nn.Module) -> None:
    """Let a float32 layer whose forward method calls one of the rotary functions of `_ROTATIONS` call that of this
    module. Any other layer stays as it is, such as one that rotates a part of each head under the same name; in
    bfloat16 the rounding of every step is part of the model.

    The layer becomes an instance of a subclass whose forward method is the same code with another function under the
    function's name. transformers itself does not change.
    """
    parent = type(layer)
    weight = next(layer.parameters(), None)
    if not isinstance(parent.forward, FunctionType) or weight is None or weight.dtype != torch.float32:
        return
    for name, rotation in _ROTATIONS.items():
        called = parent.forward.__globals__.get(name) if name in parent.forward.__code__.co_names else None
        if called is not None and _is_same_code(called, rotation.of_transformers):
            layer.__class__ = _with_rotation(parent, name)  # type: ignore[arg-type]  # a class can be hashed


@cache
def _with_rotation(parent: type[nn.Module], name: str) -> type[nn.Module]:
    method = parent.forward
    names = {**method.__globals__, name: _ROTATIONS[name].faster}
    forward = FunctionType(method.__code__, names, method.__name__, method.__defaults__, method.__closure__)
    forward.__kwdefaults__ = method.__kwdefaults__
    return type(parent.__name__, (parent,), {"forward": forward, "__module__": parent.__module__})


def rotate_heads(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries [B, H, T, D] and keys [B, G, T, D], rotated by cosines and sines [B, T, D] that are equal in both halves
    (Su et al. 2021, arXiv:2104.09864, equation 34, where the second half of a head holds the partners of the first
    half). The heads are at dimension `unsqueeze_dim`."""
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return _rotate(query, cos, sin), _rotate(key, cos, sin)


def rotate_tokens(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """[S, H, D] queries and keys of a vision tower, rotated by [S, D] cosines and sines."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return _rotate(query, cos, sin), _rotate(key, cos, sin)


class _Replacement(NamedTuple):
    of_transformers: Rotation
    faster: Rotation


_ROTATIONS: Final = {
    "apply_rotary_pos_emb": _Replacement(apply_rotary_pos_emb, rotate_heads),
    "apply_rotary_pos_emb_vision": _Replacement(apply_rotary_pos_emb_vision, rotate_tokens),
}


def _rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    rotated: torch.Tensor = _Rotate.apply(states, cos, sin)  # type: ignore[no-untyped-call]
    return rotated


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(states, cos, sin, direction=1.0)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """The gradient is turned back, because the inverse of a rotation is its transpose."""
        cos, sin = ctx.saved_tensors
        return _turned(grad, cos, sin, direction=-1.0), None, None


def _turned(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, direction: float) -> torch.Tensor:
    """[..., D]: the pair (x_i, x_{i + D/2}) turned by its angle, forwards (1) or backwards (-1)."""
    half = states.shape[-1] // 2
    turned = states * cos
    turned[..., :half].addcmul_(states[..., half:], sin[..., :half], value=-direction)
    turned[..., half:].addcmul_(states[..., :half], sin[..., half:], value=direction)
    return turned


def attend_trees(
    query: torch.Tensor, *states: torch.Tensor, layout: TreeLayout, scale: float, rules: AttentionRules = NO_RULES
) -> torch.Tensor:
    """Arguments and result are those of `rl_core.models.tree_attention.tree_sdpa`. In float32 at least: in
    bfloat16 the kernel's backward pass takes four times as long where rows have tens of tokens. The kernel has no soft
    cap."""
    precision = torch.promote_types(query.dtype, torch.float32)
    form = tree_products if is_short(layout) or rules.softcap is not None else tree_shared_prompt
    exact = (part.to(precision) for part in (query, *states))
    return form(*exact, layout=layout, scale=scale, rules=rules).to(query.dtype)


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


register_tree_function(_LANGUAGE, attend_trees)
AttentionInterface.register(_VISION, vision_attention(attend_patches))
