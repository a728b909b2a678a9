"""Rotary position embeddings with a hand-written backward pass, used by transformers' own attention layers."""

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import nn

Rotation = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def use_faster_rotary(layer: nn.Module) -> None:
    """Let a float32 layer whose forward method calls one of transformers' rotary functions call the one of this module.
    Any other layer stays as it is; in bfloat16 the rounding of every step is part of the model.

    The layer becomes an instance of a subclass whose forward method is the same code with another function under the
    function's name. transformers itself does not change.
    """
    parent = type(layer)
    weight = next(layer.parameters(), None)
    if not isinstance(parent.forward, FunctionType) or weight is None or weight.dtype != torch.float32:
        return
    for name in _ROTATIONS:
        if name in parent.forward.__code__.co_names:
            layer.__class__ = _with_rotation(parent, name)  # type: ignore[arg-type]  # a class can be hashed


@cache
def _with_rotation(parent: type[nn.Module], name: str) -> type[nn.Module]:
    method = parent.forward
    names = {**method.__globals__, name: _ROTATIONS[name]}
    forward = FunctionType(method.__code__, names, method.__name__, method.__defaults__, method.__closure__)
    forward.__kwdefaults__ = method.__kwdefaults__
    return type(parent.__name__, (parent,), {"forward": forward, "__module__": parent.__module__})


def rotate_heads(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries [B, H, T, D] and keys [B, G, T, D], rotated by cosines and sines [B, T, D] that are equal in both halves
    (Su et al. 2021, arXiv:2104.09864, equation 34, where the second half of a head holds the partners of the first
    half)."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return _rotate(query, cos, sin), _rotate(key, cos, sin)


def rotate_tokens(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """[S, H, D] queries and keys of a vision tower, rotated by [S, D] cosines and sines."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return _rotate(query, cos, sin), _rotate(key, cos, sin)


_ROTATIONS: dict[str, Rotation] = {"apply_rotary_pos_emb": rotate_heads, "apply_rotary_pos_emb_vision": rotate_tokens}


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
