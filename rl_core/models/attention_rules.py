"""What a layer asks of its attention beyond "every token before this one": a window, chunks, blocks in which tokens see
each other both ways, a soft cap, a sink.

transformers says a part of it in arguments of the attention function, and all of what is masked in functions from which
it builds a mask of T x T. A tree has no such mask, so the functions are read here.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

MaskFunction = Callable[..., Any]

_OF_NO_EFFECT: Final = frozenset({"position_ids", "use_cache"})
"""Arguments that layers hand on, but that no attention function of transformers needs."""


class Mask(NamedTuple):
    """Which tokens before it a token sees, and in blocks also after it. Numbers are of tokens."""

    window: int | None = None  # A token sees itself and the window - 1 tokens before it
    chunk: int | None = None  # A token sees what is in its own chunk; chunks are counted from the sequence's begin
    blocks: torch.Tensor | None = None  # [1, T] int64 the block of each token, -1 for none
    blocks_in_window: bool = False  # Whether the window limits what is seen of the own block, too

    def within(self, longest: int) -> "Mask | None":
        """The same for sequences of at most `longest` tokens; None if each token sees all tokens before it."""
        window = None if self.window is None or self.window >= longest else self.window
        chunk = None if self.chunk is None or self.chunk >= longest else self.chunk
        mask = self._replace(window=window, chunk=chunk)
        return None if (window, chunk, mask.blocks) == (None, None, None) else mask


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionRules:
    """What one layer asks for."""

    layer: str = "a layer"  # Its name, for errors
    mask: Mask | None = None  # None if each token sees all tokens before it
    softcap: float | None = None  # Scores are softcap * tanh(scores / softcap)
    sinks: torch.Tensor | None = None  # [H] the score of one more key of each head, whose value is 0

    def only(self, *known: str) -> None:
        """Raise ValueError for a rule that is not among these: window, chunk, blocks, softcap, sinks."""
        given = (self.mask or Mask())._asdict() | {"softcap": self.softcap, "sinks": self.sinks}
        for name, words in _WORDS.items():
            if given[name] is not None and name not in known:
                raise ValueError(
                    f"{self.layer} asks for {words}, which the kernels of packed sequences do not have: set "
                    f"model.attention=sdpa"
                )

    @property
    def changes_scores(self) -> bool:
        """Whether the weights are not the softmax of the products alone."""
        return self.softcap is not None or self.sinks is not None


NO_RULES: Final = AttentionRules()


_WORDS: Final = {
    "window": "a sliding window (sliding_window)",
    "chunk": "attention within chunks (attention_chunk_size)",
    "blocks": "attention in both directions within images (block_sequence_ids)",
    "softcap": "a soft cap of its scores (softcap)",
    "sinks": "attention sinks (s_aux)",
}


def rules_of(
    module: nn.Module,
    *,
    mask: Any,
    sliding_window: int | None,
    softcap: float | None,
    sinks: torch.Tensor | None,
    dropout: float,
    others: Mapping[str, Any],
) -> AttentionRules:
    """The rules of a layer, from the arguments with which it calls its attention function. Raises ValueError for one
    that tree attention does not know."""
    refuse_others(module, others)
    layer = _name(module)
    if dropout:
        raise ValueError(f"{layer} has attention dropout ({dropout}), which tree attention has not: set it to 0")
    if mask is not None and not isinstance(mask, Mask):
        raise ValueError(f"{layer} brings an attention mask of its own ({_shown(mask)}), which a tree cannot take")
    if getattr(module, "is_causal", True) is False:
        raise ValueError(f"{layer} attends in both directions; tree attention is for causal models")
    if sliding_window is not None:
        window = None if mask is None else mask.window
        if mask is not None and window != sliding_window:
            raise ValueError(f"{layer} has a sliding window of {sliding_window}, but its mask one of {window}")
        mask = mask or Mask(window=sliding_window)
    return AttentionRules(layer=layer, mask=mask, softcap=softcap, sinks=sinks)


def refuse_others(module: nn.Module, others: Mapping[str, Any], *, known: Collection[str] = ()) -> None:
    """Raise ValueError for an argument of an attention function that is neither `known` nor without an effect."""
    for name, value in others.items():
        if value is not None and name not in _OF_NO_EFFECT and name not in known:
            raise ValueError(
                f"{_name(module)} calls attention with {name}={_shown(value)}, which is not known here and must not "
                f"be ignored: train a model of another family, or teach rl_core/models/attention_rules.py the argument"
            )


def _name(module: nn.Module) -> str:
    number = getattr(module, "layer_idx", None)
    return type(module).__name__ + ("" if number is None else f" of layer {number}")


def _shown(value: Any) -> str:
    return f"a tensor of {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)[:80]


def attention_name(name: str, model: PreTrainedModel) -> str:
    """The registered name under which this model is to call an attention function: for a model that masks anything but
    later tokens, the one under which transformers hands over its mask functions."""
    plain, with_mask = attention_names(name)
    return plain if _sees_all_before(model) else with_mask


def attention_names(name: str) -> tuple[str, str]:
    """Without and with mask functions."""
    return name, f"{name}_with_mask"


def _sees_all_before(model: PreTrainedModel) -> bool:
    """Whether config and code of the model say that every token sees all tokens before it."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    fields = ("sliding_window", "attention_chunk_size")
    if kinds - _UNMASKED_LAYERS or any(getattr(config, name, None) is not None for name in fields):
        return False
    called = {name for module in model.modules() for name in _names_in(type(module).forward)}
    makers = {name for name in called if name.startswith("create_") and "mask" in name}
    return makers <= _OF_LATER_TOKENS and not called & _CHANGES_OF_A_MASK


_UNMASKED_LAYERS: Final = {"full_attention", "linear_attention"}
_OF_LATER_TOKENS: Final = {
    "create_causal_mask",
    "create_sliding_window_causal_mask",
    "create_recurrent_attention_mask",  # of padding, for layers that carry a state
}
_CHANGES_OF_A_MASK: Final = {"or_mask_function", "and_mask_function", "block_sequence_ids"}


def _names_in(function: Any) -> set[str]:
    """What the code of a function calls, and the names of the arguments that it passes."""
    function = inspect.unwrap(function)
    if not isinstance(function, FunctionType):
        return set()
    passed = (constant for constant in function.__code__.co_consts if isinstance(constant, tuple))
    return {*function.__code__.co_names, *(name for names in passed for name in names if isinstance(name, str))}


def read_mask(
    *, mask_function: MaskFunction, attention_mask: torch.Tensor | None, config: PreTrainedConfig, **_: Any
) -> Mask | None:
    """What transformers calls in place of building a mask: None if each token sees all tokens before it. Raises
    ValueError for a mask that a tree cannot have."""
    if attention_mask is not None:
        raise ValueError("packed trees have no padding: give the model no attention_mask")
    try:
        mask, is_causal = _read(mask_function)
    except LookupError as error:
        raise ValueError(
            f"a {config.model_type} model masks its attention by {error.args[0]}, which tree attention does not know "
            f"and must not ignore: train a model of another family, or teach rl_core/models/attention_rules.py the mask"
        ) from None
    if not is_causal:
        raise ValueError(f"a {config.model_type} model attends in both directions; tree attention is for causal models")
    return None if mask == Mask() else mask


def _read(function: MaskFunction) -> tuple[Mask, bool]:
    """The mask, and whether it hides later tokens. Raises LookupError for an unknown function."""
    made_by = function.__qualname__.partition(".")[0]
    names, cells = function.__code__.co_freevars, function.__closure__ or ()
    held = {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}
    match made_by:
        case "causal_mask_function":
            return Mask(), True
        case "packed_sequence_mask_function":  # The layout knows where sequences begin and end.
            return Mask(), False
        case "sliding_window_overlay":
            return Mask(window=held["sliding_window"]), False
        case "chunked_overlay":
            return Mask(chunk=held["chunk_size"]), False
        case "and_masks":
            parts = [_read(part) for part in held["mask_functions"]]
            return _all_of([mask for mask, _ in parts]), any(is_causal for _, is_causal in parts)
        case "or_masks":
            causal, overlay = held["mask_functions"]
            mask, is_causal = _read(causal)
            if is_causal and overlay.__qualname__.startswith("blockwise_overlay."):
                (cell,) = overlay.__closure__
                return mask._replace(blocks=cell.cell_contents), True
    raise LookupError(function.__qualname__)


def _all_of(masks: list[Mask]) -> Mask:
    """What all of them show. A window limits the blocks of another mask."""
    whole = Mask()
    for mask in masks:
        twice = [
            name for name in ("window", "chunk", "blocks") if None not in (getattr(whole, name), getattr(mask, name))
        ]
        if twice:
            raise LookupError(f"two masks with {twice[0]}")
        crosses = (whole.blocks is not None and mask.window) or (mask.blocks is not None and whole.window)
        whole = Mask(
            window=whole.window if mask.window is None else mask.window,
            chunk=whole.chunk if mask.chunk is None else mask.chunk,
            blocks=whole.blocks if mask.blocks is None else mask.blocks,
            blocks_in_window=whole.blocks_in_window or mask.blocks_in_window or bool(crosses),
        )
    return whole
