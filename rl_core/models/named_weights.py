"""The weights of a model by their names in Hugging Face files: all of them, or its adapters alone."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import PrefixChange, Transpose, revert_weight_conversion

from rl_core.distributed.shards import reshard, stored_weights, whole

ADAPTER: Final = ".lora_"
"""Part of the name of each matrix of an adapter, and of no other parameter."""


def named_hf_weights(model: PreTrainedModel, *, merged: bool = True) -> Iterator[tuple[str, torch.Tensor]]:
    """Every weight once, detached, with its name in transformers' modules (`model.language_model.layers.0...`). A tied
    output head is not listed again. Adapters are merged into their weights, one layer at a time; unless `merged`, the
    weights come without them.

    The weights of a sharded model are gathered one at a time: every rank takes all of them, in the order in which they
    come. They have the number format in which the model computes.
    """
    reshard(model)
    for name, weight in stored_weights(model):
        if ADAPTER in name:
            continue
        layer, adapted, kind = name.rpartition(".base_layer.")
        if merged and adapted and kind == "weight":
            yield f"{layer}.weight", _merged_weight(model.get_submodule(layer), weight, model.config.dtype)
        else:
            yield plain_name(name), whole(weight, dtype=model.config.dtype)


def named_adapters(model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """The two matrices of every adapter by the names of peft's files (`...q_proj.lora_A.weight`), gathered as in
    `named_hf_weights`."""
    reshard(model)
    for name, weight in model.named_parameters():
        if ADAPTER in name:
            yield plain_name(name), whole(weight, dtype=model.config.dtype)


class Published(NamedTuple):
    """How a weight is in the files of published checkpoints: its name, and whether its last two dimensions are the
    other way round, as those of experts in Qwen3-VL."""

    name: str
    is_transposed: bool


def published(model: PreTrainedModel) -> dict[str, Published]:
    """[name in transformers' modules] -> how it is there, of every weight of a model that was built, not loaded. One
    that is several tensors there, as experts are in Qwen3, keeps its name here."""
    _name_as_published(model)
    weights, transposed = dict(stored_weights(model)), _transposed(model)
    reverted: dict[str, torch.Tensor] = revert_weight_conversion(model, dict(weights))
    names: dict[int, str] = {id(weight): name for name, weight in reverted.items()}
    return {name: Published(names.get(id(weight)) or name, name in transposed) for name, weight in weights.items()}


def save_as_published(
    model: PreTrainedModel, folder: Path, weights: Iterable[tuple[str, torch.Tensor]] | None = None
) -> None:
    """Write a model's config, and its weights, unless others are given by their names in transformers' modules, in the
    form of published checkpoints."""
    if getattr(model, "_weight_conversions", None) is None:
        _name_as_published(model)
    transposed = _transposed(model)
    given = None if weights is None else dict(weights)
    if transposed:  # transformers would do it back, because the shape is another one than in the model
        model._weight_conversions = [one for one in model._weight_conversions if not _is_transposing(one)]
        given = dict(model.state_dict()) if given is None else given
        for name in transposed:
            given[name] = given[name].mT.contiguous()
    model.save_pretrained(folder, state_dict=given)


def _name_as_published(model: PreTrainedModel) -> None:
    """Let a model that was built, not loaded, be saved by the names of published files. transformers leaves out every
    prefix that a file may have or not, and with them those that the files of a part always have, such as
    `vision_model.` in a SigLIP tower."""
    conversions = [
        conversion
        for conversion in get_model_conversion_mapping(model, add_legacy=False)
        if conversion.scope_prefix or not isinstance(conversion, PrefixChange)
    ]
    if conversions:
        model._weight_conversions = conversions


def _transposed(model: PreTrainedModel) -> frozenset[str]:
    conversions = filter(_is_transposing, get_model_conversion_mapping(model, add_legacy=False))
    endings = tuple(ending for conversion in conversions for ending in conversion.target_patterns)
    return frozenset(name for name, _ in model.named_parameters() if endings and name.endswith(endings))


def _is_transposing(conversion: Any) -> bool:
    operations: Sequence[Any] = getattr(conversion, "operations", ())
    return len(operations) == 1 and isinstance(operations[0], Transpose)


def plain_name(name: str) -> str:
    """The name of a parameter without the levels that peft adds."""
    return name.replace(".base_layer.", ".").replace(".default.", ".")


@torch.no_grad()
def _merged_weight(layer: Any, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The weight of a peft linear layer plus its adapter, computed in float32 and rounded once. `dtype` is the number
    format in which a sharded model computes."""
    inner, outer = (whole(part["default"].weight, dtype=dtype).float() for part in (layer.lora_A, layer.lora_B))
    base = whole(weight, dtype=dtype)
    merged: torch.Tensor = torch.addmm(base.float(), outer, inner, alpha=layer.scaling["default"])
    return merged.to(base.dtype)
