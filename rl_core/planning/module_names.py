"""The names of a model's modules as transformers has them in memory, which `model.lora` chooses from.

A test compares them with the real modules of every family.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from rl_core.planning.model_sizes import ModelSizes

_ATTENTION: Final = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
_FEED_FORWARD: Final = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
_LAYER_OTHERS: Final = ("mlp.act_fn", "input_layernorm", "post_attention_layernorm")
_LANGUAGE_OTHERS: Final = ("embed_tokens", "norm", "rotary_emb")
_HEAD_NORMS: Final = ("self_attn.q_norm", "self_attn.k_norm")
_WITH_HEAD_NORMS: Final = ("qwen3", "qwen3_vl")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tower:
    """Names inside a vision tower: of a block, of a merger of patches, and the rest."""

    block_linear: Sequence[str]
    block_others: Sequence[str]
    merger_linear: Sequence[str]
    merger_others: Sequence[str]
    others: Sequence[str] = ("patch_embed.proj", "rotary_pos_emb")


_SEQUENTIAL_MERGER: Final[Mapping[str, Sequence[str]]] = {
    "merger_linear": ("mlp.0", "mlp.2"),
    "merger_others": ("ln_q", "mlp.1"),
}

_TOWERS: Final[Mapping[str, _Tower]] = {
    "qwen2_vl": _Tower(
        block_linear=("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"),
        block_others=("norm1", "norm2", "mlp.act"),
        **_SEQUENTIAL_MERGER,
    ),
    "qwen2_5_vl": _Tower(
        block_linear=("attn.qkv", "attn.proj", *_FEED_FORWARD),
        block_others=("norm1", "norm2", "mlp.act_fn"),
        **_SEQUENTIAL_MERGER,
    ),
    "qwen3_vl": _Tower(
        block_linear=("attn.qkv", "attn.proj", "mlp.linear_fc1", "mlp.linear_fc2"),
        block_others=("norm1", "norm2", "mlp.act_fn"),
        merger_linear=("linear_fc1", "linear_fc2"),
        merger_others=("norm", "act_fn"),
        others=("patch_embed.proj", "rotary_pos_emb", "pos_embed"),
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleNames:
    """Full names, those of the linear layers that can be adapted and those of everything else: embeddings, the output
    head, norms, and modules that hold others."""

    linear: frozenset[str]
    others: frozenset[str]


def module_names(sizes: ModelSizes) -> ModuleNames:
    """The names of a model of these sizes."""
    linear = frozenset([*_language_linear(sizes), *_vision_linear(sizes)])
    leaves = {"lm_head", *_language_others(sizes), *_vision_others(sizes)}
    holders = {holder for name in (*linear, *leaves) for holder in _holders(name)}
    return ModuleNames(linear=linear, others=frozenset(leaves | holders))


def language_prefix(sizes: ModelSizes) -> str:
    """Where the language model lies."""
    return "model.language_model" if sizes.family in _TOWERS else "model"


def _language_linear(sizes: ModelSizes) -> Iterator[str]:
    yield from _repeated(f"{language_prefix(sizes)}.layers", sizes.num_layers, (*_ATTENTION, *_FEED_FORWARD))


def _language_others(sizes: ModelSizes) -> Iterator[str]:
    prefix = language_prefix(sizes)
    yield from (f"{prefix}.{name}" for name in _LANGUAGE_OTHERS)
    head_norms = _HEAD_NORMS if sizes.family in _WITH_HEAD_NORMS else ()
    yield from _repeated(f"{prefix}.layers", sizes.num_layers, (*_LAYER_OTHERS, *head_norms))


def _vision_linear(sizes: ModelSizes) -> Iterator[str]:
    tower = _TOWERS.get(sizes.family)
    if tower is not None:
        yield from _repeated("model.visual.blocks", sizes.vision_depth, tower.block_linear)
        yield from _mergers(sizes, tower.merger_linear)


def _vision_others(sizes: ModelSizes) -> Iterator[str]:
    tower = _TOWERS.get(sizes.family)
    if tower is not None:
        yield from (f"model.visual.{name}" for name in tower.others)
        yield from _repeated("model.visual.blocks", sizes.vision_depth, tower.block_others)
        yield from _mergers(sizes, tower.merger_others)


def _mergers(sizes: ModelSizes, names: Sequence[str]) -> Iterator[str]:
    yield from (f"model.visual.merger.{name}" for name in names)
    yield from _repeated("model.visual.deepstack_merger_list", sizes.deep_stack, names)


def _repeated(prefix: str, count: int, names: Sequence[str]) -> Iterator[str]:
    yield from (f"{prefix}.{number}.{name}" for number in range(count) for name in names)


def _holders(name: str) -> Iterator[str]:
    """What a module lies in: "a.b" and "a" for "a.b.c"."""
    return accumulate(name.split(".")[:-1], lambda outer, inner: f"{outer}.{inner}")
