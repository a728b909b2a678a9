"""Checks of the trainer's attention: its kernels against the plain formula, values and gradients."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import get_args

import torch

from rl_core.config.model import ModelConfig, TinyModel
from rl_core.device import computing_device
from rl_core.models.attention import TreeAttention, tree_attention
from rl_core.models.tree_layout import TreeLayout, TreeSpans
from rl_core.planning.gpu import Backend, attention_problems
from tasks.device_check.check import Finding, Setting, compared
from tasks.device_check.trial import Dtype

_HEADS, _KEY_HEADS, _HEAD_SIZE = 8, 2, 64
_PROMPTS = (150, 37, 260)
_RESPONSES = ((60, 1, 33, 128), (17, 90), (200, 5, 64))
_BOUNDS: Mapping[torch.dtype, float] = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
"""Largest norm of a difference, as a share of the norm. bfloat16 rounds inputs and outputs at 4e-3."""


def attention_forms(device: torch.device) -> Sequence[tuple[Backend, TreeAttention, torch.dtype]]:
    """The kernels of tree attention that run on the device, each with a number format that it takes."""
    has_gpu, tiny = device.type == "cuda", TinyModel(type="tiny")
    return [
        (backend, tree_attention(backend), getattr(torch, dtype))
        for dtype in get_args(Dtype)
        for backend in get_args(Backend)
        if not any(attention_problems(ModelConfig(source=tiny, attention=backend, dtype=dtype), has_gpu=has_gpu))
    ]


def attention_findings(setting: Setting) -> Iterator[Finding]:
    """Whether each form of tree attention gives the values and gradients of the plain formula."""
    device = computing_device()
    for name, form, dtype in attention_forms(device):
        yield attention_finding(name, form, dtype, device)


def attention_finding(name: str, form: TreeAttention, dtype: torch.dtype, device: torch.device) -> Finding:
    """Whether a form of tree attention gives the values and gradients of the plain formula."""
    layout = TreeLayout(TreeSpans(_PROMPTS, _RESPONSES), device=device)
    tokens = sum(_PROMPTS) + sum(map(sum, _RESPONSES))
    generator = torch.Generator().manual_seed(0)
    heads = (_HEADS, _KEY_HEADS, _KEY_HEADS)
    states = [torch.randn(tokens, count, _HEAD_SIZE, generator=generator).to(dtype) for count in heads]
    weight = torch.randn(tokens, _HEADS, _HEAD_SIZE, generator=generator).to(dtype)
    scale = _HEAD_SIZE**-0.5
    expected = _with_gradients(lambda *own: plain_attention(*own, scale=scale), [s.double() for s in states], weight)
    actual = _with_gradients(
        lambda *own: form(*own, layout=layout, scale=scale), [state.to(device) for state in states], weight
    )
    errors = [float((one - other).norm() / other.norm()) for one, other in zip(actual, expected, strict=True)]
    bound = _BOUNDS[dtype]
    return compared(
        f"attention over trees with {name} in {str(dtype).removeprefix('torch.')}",
        holds=max(errors) <= bound,
        measured=f"values differ by {errors[0]:.1e} of their norm, gradients by {max(errors[1:]):.1e} of theirs "
        f"(bound {bound:.0e})",
        advice="set model.attention: sdpa, and report it with device.json",
        figures={"values": errors[0], "gradients": max(errors[1:])},
    )


def plain_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, scale: float) -> torch.Tensor:
    """Attention over the trees of this check by its formula, softmax(scale Q K^T) V with the full mask: query [T, H,
    D], key and value [T, G, D] (H a multiple of G) give [T, H, D]."""
    key, value = (part.repeat_interleave(_HEADS // _KEY_HEADS, dim=1) for part in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query, key) * scale
    weights = scores.masked_fill(~_full_mask(), -torch.inf).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, value)


def _full_mask() -> torch.Tensor:
    """[T, T] bool: a token attends to its own branch up to itself, and to its prompt."""
    branches: list[tuple[int, int]] = []
    for tree, (prompt, responses) in enumerate(zip(_PROMPTS, _RESPONSES, strict=True)):
        branches += [(tree, 0)] * prompt
        for number, length in enumerate(responses, start=1):
            branches += [(tree, number)] * length
    trees, numbers = torch.tensor(branches).T
    same_tree = trees[:, None] == trees
    sees_branch = (numbers[:, None] == numbers) | (numbers == 0)
    return (same_tree & sees_branch).tril()


def _with_gradients(
    attention: Callable[..., torch.Tensor], states: list[torch.Tensor], weight: torch.Tensor
) -> list[torch.Tensor]:
    """The output, and the gradients of query, key and value of its product with the weight; all float64 on the host."""
    leaves = [state.requires_grad_() for state in states]
    output = attention(*leaves)
    gradients = torch.autograd.grad(output, leaves, weight.to(output))
    return [tensor.detach().cpu().double() for tensor in (output, *gradients)]
