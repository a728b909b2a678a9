"""Describes a model that transformers builds without weights, on torch's meta device. Loading torch takes seconds, so
`model_sizes.py` imports this module only where torch is loaded already, and elsewhere runs it as a process: it reads
the fields of a config.json from standard input, and writes the result as one line of JSON."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedModel,
)

_MOST_LAYERS = 10_000


def describe(fields: Mapping[str, Any], places: Sequence[str]) -> dict[str, Any]:
    """The fields of `ModelSizes`, as plain values. `places` are the names of the vision tower and of what joins it to
    the language model, in the model without its head. Raises ValueError where transformers cannot build the model."""
    try:
        config = AutoConfig.for_model(**fields)
        _check_depth(config)
        factory = AutoModelForImageTextToText if "vision_config" in config.sub_configs else AutoModelForCausalLM
        with torch.device("meta"):
            model = factory.from_config(config, dtype=torch.float32, trust_remote_code=False)
    except Exception as error:  # a wrong config.json can make transformers and torch raise anything
        raise ValueError(f"transformers cannot build the model: {type(error).__name__}: {error}") from error
    text = config.get_text_config()
    kinds = sorted({*heads_of_layers(text)})
    linear, others = layers_and_others(model)
    seeing = tuple(f"{model.base_model_prefix}.{place}." for place in places)
    stored = {id(weight): (name, weight.numel()) for name, weight in model.state_dict(keep_vars=True).items()}
    weights = dict(stored.values())  # a tied head is the embedding
    return {
        "family": config.model_type,
        "parameters": sum(weights.values()),
        "vision_parameters": sum(number for name, number in weights.items() if name.startswith(seeing)),
        **(_vision_fields(config.vision_config, model.base_model.get_submodule(places[0])) if places else {}),
        "num_layers": text.num_hidden_layers,
        "layer_parameters": max(_size(layer) for layer in model.get_decoder().layers),
        "hidden_size": text.hidden_size,
        "intermediate_size": text.intermediate_size,
        "kinds_of_heads": [list(kind) for kind in kinds],
        "query_size": text.num_attention_heads * max(kind.size for kind in kinds),
        "key_value_size": max(kind.size * kind.key_values for kind in kinds),
        "experts_per_token": getattr(text, "num_experts_per_tok", None) or getattr(text, "top_k_experts", None) or 0,
        "norms_queries": any(name.endswith("self_attn.q_norm") for name in others),
        "vocab_size": text.vocab_size,
        "tied_head": model.get_output_embeddings().weight is model.get_input_embeddings().weight,
        "max_positions": _max_positions(text),
        "linear_layers": linear,
        "other_modules": others,
    }


class Heads(NamedTuple):
    """The attention heads of a layer: the size of each, and how many have keys and values of their own."""

    size: int
    key_values: int


def heads_of_layers(text: PreTrainedConfig) -> list[Heads]:
    """Those of each layer of a language model, which differ between its layers in some, such as Gemma 4."""
    layers = text.per_layer_config if text.is_heterogeneous else [text]
    heads = [
        Heads(
            size=getattr(layer, "head_dim", None) or layer.hidden_size // layer.num_attention_heads,
            key_values=layer.num_key_value_heads or layer.num_attention_heads,
        )
        for layer in layers
    ]
    return heads if text.is_heterogeneous else heads * text.num_hidden_layers


def layers_and_others(model: PreTrainedModel) -> tuple[dict[str, int], list[str]]:
    """Inputs plus outputs of each linear layer but the output head, by its name; and the names of all other modules,
    and of the weights that are those of many layers in one, as of all experts."""
    linear = {
        name: module.in_features + module.out_features
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not model.get_output_embeddings()
    }
    modules = {name for name, _ in model.named_modules() if name}
    stacks = {name for name, _ in model.named_parameters() if name.rpartition(".")[2] not in ("weight", "bias")}
    return linear, sorted((modules | stacks) - linear.keys())


def _size(layer: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in layer.parameters())


def _max_positions(text: Any) -> int:
    """Up to where trainer and generator compute the same. Beyond the positions of the first training, frequencies of
    `longrope` depend on the longest sequence of a pass, and vLLM leaves out that queries grow."""
    rope = getattr(text, "rope_parameters", None) or {}
    most: int = text.max_position_embeddings
    changes = rope.get("rope_type") == "longrope" or rope.get("llama_4_scaling_beta")
    return min(most, rope["original_max_position_embeddings"]) if changes else most


def _vision_fields(config: Any, tower: torch.nn.Module) -> dict[str, Any]:
    """From the blocks of the tower, which are the longest list of its modules."""
    blocks = max((found for found in tower.modules() if isinstance(found, torch.nn.ModuleList)), key=len)
    layers = {name: layer for name, layer in blocks[0].named_modules() if isinstance(layer, torch.nn.Linear)}
    feed_forward = [layer for name, layer in layers.items() if "att" not in name.partition(".")[0]]
    sides = config.patch_size if isinstance(config.patch_size, list | tuple) else [config.patch_size] * 2
    channels: Any = getattr(config, "in_channels", None) or getattr(config, "num_channels", 3)
    return {
        "patch_size": sides[0],
        "patch_numbers": channels * getattr(config, "temporal_patch_size", 1) * sides[0] * sides[1],
        "vision_blocks": len(blocks),
        "vision_heads": getattr(config, "num_heads", None) or config.num_attention_heads,
        "vision_width": feed_forward[0].in_features,
        "vision_intermediate_size": feed_forward[0].out_features,
        "gated_vision": len(feed_forward) > 2,
    }


def _check_depth(config: Any) -> None:
    """Raises ValueError where a mistaken number of layers would take hours to build."""
    vision = getattr(config, "vision_config", None)
    layers = config.get_text_config().num_hidden_layers
    layers += getattr(vision, "depth", 0) or getattr(vision, "num_hidden_layers", 0)
    if layers > _MOST_LAYERS:
        raise ValueError(f"it has {layers} layers, more than {_MOST_LAYERS}")


def _main() -> None:
    try:
        described = describe(**json.load(sys.stdin))
    except ValueError as error:
        described = {"error": str(error)}
    sys.stdout.write(json.dumps(described))


if __name__ == "__main__":
    _main()
