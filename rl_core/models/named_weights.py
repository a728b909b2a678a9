"""The weights of a model by their names in Hugging Face files: all of them, or its adapters alone."""

from collections.abc import Iterator
from typing import Any, Final

import torch
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import PrefixChange, revert_weight_conversion

from rl_core.distributed.shards import reshard, whole

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
    for name, weight in model.named_parameters():
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


def name_as_published(model: PreTrainedModel) -> None:
    """Let a model that was made anew be saved by the names in the files of published checkpoints. transformers leaves
    out every prefix that a file may have or not, and with them those that the files of a part always have, such as
    `vision_model.` in a SigLIP tower."""
    conversions = [
        conversion
        for conversion in get_model_conversion_mapping(model, add_legacy=False)
        if conversion.scope_prefix or not isinstance(conversion, PrefixChange)
    ]
    if conversions:
        model._weight_conversions = conversions


def published_names(model: PreTrainedModel) -> dict[str, str]:
    """[name in transformers' modules] -> name in the files of published checkpoints, of every weight of a model that
    was made anew. One that is another tensor there, as experts are, keeps its name here."""
    name_as_published(model)
    weights = dict(model.named_parameters())
    published: dict[str, torch.Tensor] = revert_weight_conversion(model, dict(weights))
    names: dict[int, str] = {id(weight): name for name, weight in published.items()}
    return {name: names.get(id(weight)) or name for name, weight in weights.items()}


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
