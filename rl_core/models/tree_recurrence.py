"""Layers that carry a state from token to token, over packed trees: a prompt is computed once, and each of its
responses starts from a copy of the state at its end, so the gradients of all responses add up in the prompt that they
share.

These are layers of the gated delta rule (Yang et al. 2024, arXiv:2412.06464) behind a short convolution, as in Qwen3.5
and Qwen3-Next. transformers computes rule and convolution by functions that know no trees: packed, the state of one
response would flow into the next one, and nothing would say so. Here such a layer becomes an instance of a subclass
whose forward method is the same code with other functions under their names; transformers itself does not change. They
call the functions that were there for a batch of padded prompts, and then for a batch of padded responses: on a CPU
transformers' own, and on a GPU those that it chooses, the kernels of the packages fla and causal_conv1d if these are
installed. On a GPU none of them was ever run here.

Letters: T packed tokens; B prompts of P slots and M responses of R slots; H heads; C channels; k taps of a convolution.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from types import FunctionType
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from rl_core.models.own_logits import body_of
from rl_core.models.row_moves import Copies, copy_rows, sent
from rl_core.models.tree_layout import TreeLayout

Convolve = Callable[..., torch.Tensor]
Rule = Callable[..., tuple[torch.Tensor, torch.Tensor | None]]

_ATTENTION: Final = "ALL_ATTENTION_FUNCTIONS"
"""What the attention layers of transformers look their function up in."""


class BranchingLayer:
    """A layer whose state branches with the trees."""


def use_tree_recurrence(model: PreTrainedModel) -> None:
    """Let the layers of the language model that carry a state branch with the trees, for which the policy's forward
    passes `tree_layout`. Raises ValueError for a layer of which it is not known how it would."""
    for _, layer in _decoder_layers(model):
        for module in list(layer.modules()):
            if _is_gated_delta_rule(type(module)):
                module.__class__ = _branching(type(module))  # type: ignore[arg-type]  # a class can be hashed
    _refuse_unknown(model)


def carries_state(model: PreTrainedModel) -> bool:
    """Whether layers of a model carry a state through the sequence, besides attention."""
    return any(isinstance(module, BranchingLayer) for module in model.modules())


def tree_convolution(convolve: Convolve) -> Convolve:
    """The convolution of transformers over packed trees; before its first token a response has the last tokens of its
    prompt."""

    def causal_conv1d_fn(
        hidden_states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        activation: str | None = None,
        *,
        tree_layout: TreeLayout | None = None,
        use_cache: bool = False,
    ) -> torch.Tensor:
        """[1, C, T] and [C, k] -> [1, C, T]."""
        layout = _needed(tree_layout)

        def over(rows: torch.Tensor) -> torch.Tensor:
            """[N, L, C] -> [N, L, C]."""
            return convolve(rows.transpose(1, 2), weight, bias, activation=activation).transpose(1, 2)

        rows, taps_before = hidden_states[0].transpose(0, 1), weight.shape[-1] - 1
        prompts, responses = layout.blocks(rows)
        outputs = [over(prompts).flatten(0, 1)]
        if layout.has_responses:
            last = _last_tokens(layout, taps_before)
            before = copy_rows(rows, last.copies).masked_fill(last.missing, 0.0)
            with_prompt = torch.cat([before.view(len(responses), taps_before, -1), responses], dim=1)
            outputs.append(over(with_prompt)[:, taps_before:].flatten(0, 1))
        return layout.tokens(outputs).transpose(0, 1)[None]

    return causal_conv1d_fn


def tree_rule(rule: Rule) -> Rule:
    """The gated delta rule of transformers over packed trees."""

    def torch_chunk_gated_delta_rule(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        g: torch.Tensor,
        beta: torch.Tensor,
        use_qk_l2norm_in_kernel: bool,
        initial_state: None = None,
        output_final_state: bool = False,
        cu_seqlens: None = None,
        tree_layout: TreeLayout | None = None,
        use_cache: bool = False,
    ) -> tuple[torch.Tensor, None]:
        """Queries, keys and values [1, T, H, D], decays and strengths [1, T, H] -> [1, T, H, D]."""
        layout = _needed(tree_layout)
        assert initial_state is None and not output_final_state and cu_seqlens is None, "the trainer has no cache"
        states = [layout.blocks(part[0]) for part in (query, key, value)]
        # Without decay and without strength an unused slot leaves the state as it is.
        used = _used_slots(layout)
        gates = [[part * kept for part, kept in zip(layout.blocks(gate[0]), used, strict=True)] for gate in (g, beta)]

        def over(block: int, **of_state: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
            """The rule over the prompts (0) or the responses (1)."""
            return rule(
                *(part[block] for part in states),
                g=gates[0][block],
                beta=gates[1][block],
                use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
                chunk_size=_chunk_size(used[block].shape[1]),
                **of_state,
            )

        out, state = over(0, output_final_state=layout.has_responses)
        outputs = [out.flatten(0, 1)]
        if state is not None:
            out, _ = over(1, initial_state=copy_rows(state, layout.padded.prompt_copies))
            outputs.append(out.flatten(0, 1))
        return layout.tokens(outputs)[None], None

    return torch_chunk_gated_delta_rule


_MAKERS: Final[dict[str, Callable[[Any], Any]]] = {
    "causal_conv1d_fn": tree_convolution,
    "torch_chunk_gated_delta_rule": tree_rule,
}


def _chunk_size(length: int) -> int:
    """Tokens that transformers' own rule computes at a time, to which it pads: 64, if there are so many. Twelve tokens
    take a fifth of the time."""
    return next((size for size in (16, 32) if length <= size), 64)


def _needed(layout: TreeLayout | None) -> TreeLayout:
    if layout is None:
        raise ValueError("a state that branches needs `tree_layout`: call the policy with packed trees")
    return layout


class _LastTokens(NamedTuple):
    """The tokens of each response's prompt that its convolution still sees: [M * (k - 1)] rows."""

    copies: Copies  # The tokens; where the prompt has no such one, its first
    missing: torch.Tensor  # [M * (k - 1), 1] bool, where it has none


@lru_cache(maxsize=2)
def _last_tokens(layout: TreeLayout, count: int) -> _LastTokens:
    """Cached, because every layer needs the same."""
    starts, lengths = (part[layout.response_prompt, None] for part in layout.prompts)
    tokens = starts + lengths + np.arange(-count, 0)
    copies = Copies.of(np.maximum(tokens, starts).ravel(), device=layout.device)
    return _LastTokens(copies, sent((tokens < starts).reshape(-1, 1), layout.device))


@lru_cache(maxsize=2)
def _used_slots(layout: TreeLayout) -> tuple[torch.Tensor, torch.Tensor]:
    """[B, P, 1] and [M, R, 1] bool, the slots that have a token. Cached, because every layer needs the same."""
    shapes, lengths = (layout.prompt_shape, layout.response_shape), (layout.prompts[1], layout.responses[1])
    prompts, responses = (
        sent(np.arange(width) < own[:, None], layout.device)[..., None]
        for (_, width), own in zip(shapes, lengths, strict=True)
    )
    return prompts, responses


def _decoder_layers(model: PreTrainedModel) -> Iterator[tuple[int, nn.Module]]:
    """The layers of the language model, with their numbers."""
    for layers in _outermost_lists(body_of(model).get_decoder()):
        yield from enumerate(layers)


def _outermost_lists(module: nn.Module) -> Iterator[nn.ModuleList]:
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield child
        else:
            yield from _outermost_lists(child)


def _is_gated_delta_rule(layer: type[nn.Module]) -> bool:
    """Whether the forward method of a class calls both functions and hands on what it does not know itself."""
    forward = inspect.unwrap(layer.forward)
    if issubclass(layer, BranchingLayer) or not isinstance(forward, FunctionType):
        return False
    return _MAKERS.keys() <= set(forward.__code__.co_names) and bool(forward.__code__.co_flags & inspect.CO_VARKEYWORDS)


@cache
def _branching(parent: type[nn.Module]) -> type[nn.Module]:
    method = inspect.unwrap(parent.forward)
    assert isinstance(method, FunctionType)
    functions = {name: make(_of_device(method.__globals__[name])) for name, make in _MAKERS.items()}
    names = {**method.__globals__, **functions}
    forward = FunctionType(method.__code__, names, method.__name__, method.__defaults__, method.__closure__)
    forward.__kwdefaults__ = method.__kwdefaults__
    return type(parent.__name__, (BranchingLayer, parent), {"forward": forward, "__module__": parent.__module__})


def _of_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of transformers; on a CPU the one in torch that it has in place of a kernel."""
    in_torch = inspect.unwrap(function)

    def chosen(states: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        return (function if states.is_cuda else in_torch)(states, *arguments, **options)

    return chosen


def _refuse_unknown(model: PreTrainedModel) -> None:
    """Raises ValueError for a layer that has neither attention nor a state that branches, or besides them something
    else that mixes tokens."""
    for number, layer in _decoder_layers(model):
        modules = list(layer.modules())
        branching = [module for module in modules if isinstance(module, BranchingLayer)]
        known = {id(part) for module in branching for part in module.modules()}
        if not branching and not any(_ATTENTION in _names_in(type(module)) for module in modules):
            _refuse(model, layer, number)
        for module in modules:
            if id(module) not in known and _mixes_tokens(module):
                _refuse(model, module, number)
    if getattr(model, "_is_stateful", False) and not carries_state(model):
        _refuse(model, model, None)


def _names_in(layer: type[nn.Module]) -> set[str]:
    """What the methods of a class call."""
    found: set[str] = set()
    for base in layer.__mro__:
        if base.__module__.startswith("torch."):
            break
        functions = map(inspect.unwrap, filter(callable, vars(base).values()))
        found.update(*(function.__code__.co_names for function in functions if isinstance(function, FunctionType)))
    return found


def _mixes_tokens(module: nn.Module) -> bool:
    """Whether it is a convolution over tokens, or keeps a state in transformers' cache."""
    if isinstance(module, nn.Conv1d):
        return True
    forward = inspect.unwrap(type(module).forward)
    return isinstance(forward, FunctionType) and "cache_params" in inspect.signature(forward).parameters


def _refuse(model: PreTrainedModel, module: nn.Module, number: int | None) -> None:
    layer = type(module).__name__ + ("" if number is None else f" of layer {number}")
    raise ValueError(
        f"{layer} of a {model.config.model_type} model carries a state from token to token, and it is not known how "
        f"the responses to a prompt branch from it: train a model of another family, or teach "
        f"rl_core/models/tree_recurrence.py the layer"
    )
