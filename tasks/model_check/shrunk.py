"""A model of few layers with everything else of a real one: its widths, flags, tokenizer and processor, and random
weights, none of which is trivial."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from rl_core.distributed.shards import stored_weights
from rl_core.environment import usable_memory
from rl_core.files import link_or_copy, read_json
from rl_core.models.loading import load_architecture, model_class
from rl_core.models.named_weights import save_as_published
from tasks.device_check.check import Finding, Setting
from tasks.device_check.model_rows import generator_dtype
from tasks.model_check.checks import BYTES_OF_CHECKS, OPENS
from tasks.model_check.experts import choice_fields

_VISION_BLOCKS: Final = 2
_DEPTHS: Final = ("num_hidden_layers", "depth", "n_layers", "num_layers")
"""Names of the number of layers in configs of transformers."""

_TAKING: Final = "num_kv_shared_layers"
"""Of the last layers of a model, how many take keys and values of the last earlier one of their kind."""

_WIDENED: Final = 25.0
"""Matrices of hidden size H are drawn sqrt(H) times narrower than this, but never narrower than transformers draws
them: far enough from zero that a layer shows in the log-probs."""

_DRAWN: Final = 0.02
"""Standard deviation of matrices that transformers begins at 0, before they are drawn wider."""

_QUERY_NORM: Final = ".q_norm.weight"

_NOISE: Final = 0.1
"""Standard deviation of what is added to norms, biases and other vectors, which begin at 0 or 1."""


def opening_findings(setting: Setting, folder: str) -> Iterator[Finding]:
    """Whether transformers makes the model of a folder without code of the checkpoint; writes it to `setting.model`, in
    bfloat16 where the checks of generator and trainer have no memory for more."""
    assert setting.model is not None, "where the model is written"
    whole = load_architecture(Path(folder))
    config = shrunk(whole)
    with torch.device("meta"):
        parameters = model_class(config).from_config(config, trust_remote_code=False).num_parameters()
    is_large = parameters * BYTES_OF_CHECKS > usable_memory()
    _write(config, Path(folder), setting.model, dtype=torch.bfloat16 if is_large else torch.float32)
    dtype = generator_dtype(read_json(setting.model / "config.json"))
    kept, text = config.get_text_config(), whole.get_text_config()
    yield Finding(
        check=OPENS,
        verdict="ok",
        measured=f"{kept.num_hidden_layers} of {text.num_hidden_layers} layers, {parameters / 1e6:,.1f} million random "
        f"weights, {'bfloat16' if is_large else 'float32'}"
        + ("" if is_large or dtype == "float32" else f"; in the generator {dtype}"),
        figures={"parameters": parameters, "dtype": dtype},
    )


def _write(config: PreTrainedConfig, folder: Path, out: Path, *, dtype: torch.dtype) -> None:
    """Write a model with random weights to `out`, with the tokenizer and processor of `folder`."""
    out.mkdir(parents=True)
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.name != "config.json" and not _holds_weights(path):
            link_or_copy(path.resolve(), out / path.name)
    save_as_published(_random_model(config, dtype), out)


def shrunk(config: PreTrainedConfig) -> PreTrainedConfig:
    """The config with `kept_layers` of its layers, two blocks of the vision tower, and twice as many experts as a token
    goes through. A list with an entry for each layer is cut like the layers; one with numbers of layers names those
    that are left."""
    fields = config.to_dict()
    text = fields if config.get_text_config() is config else fields[_name_of(config, config.get_text_config())]
    _cut(text, kept_layers(text))
    if (names := choice_fields(text)) is not None and not text.get("n_group"):
        number, chosen = names
        text[number] = min(text[number], 2 * text[chosen])
    if "vision_config" in fields:
        _cut(fields["vision_config"], _VISION_BLOCKS)
        if "insert_layer_id" in fields:  # of the block after which some towers merge patches
            fields["insert_layer_id"] = min(fields["insert_layer_id"], _VISION_BLOCKS - 1)
    return type(config).from_dict(fields)


def kept_layers(text: dict[str, Any]) -> int:
    """How many layers of a language model show all of its kinds: one period of them and one layer more. Where layers
    take keys and values of earlier ones, it is two periods, of which the second takes those of the first; and where
    their sizes differ, no layer more, because the last one has to be of its kind."""
    kinds = _kinds_of_layers(text)
    start = next((k for k in range(len(kinds)) if kinds[k:] and _period(kinds[k:]) <= len(kinds[k:]) // 2), 0)
    period = _period(kinds[start:])
    more = period if text.get(_TAKING) else 0 if text.get("per_layer_config") else 1
    return min(len(kinds), start + period + more)


def _kinds_of_layers(text: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What the config says of each layer."""
    layers: int = text[_depth_name(text)]
    lists = [value for value in text.values() if isinstance(value, list | tuple) and len(value) == layers]
    dense = text.get("first_k_dense_replace") or 0
    return [(number < dense, *(one[number] for one in lists)) for number in range(layers)]


def _period(kinds: Sequence[object]) -> int:
    """Smallest step after which the kinds repeat; all of them where they never do."""
    return next(
        step for step in range(1, len(kinds) + 1) if all(kinds[k] == kinds[k - step] for k in range(step, len(kinds)))
    )


def _cut(fields: dict[str, Any], kept: int) -> None:
    name = _depth_name(fields)
    layers = fields[name]
    if kept >= layers:
        return
    fields[name] = kept
    for key, value in fields.items():
        if isinstance(value, list | tuple) and len(value) == layers:
            fields[key] = value[:kept]
        elif key.endswith("_indexes") and value:
            fields[key] = sorted({min(number, kept - 1) for number in value})
        elif key == _TAKING and value:
            fields[key] = min(value, kept // 2)
        elif key == "per_layer_config" and value:
            fields[key] = {number: own for number, own in value.items() if int(number) < kept}


def _depth_name(fields: dict[str, Any]) -> str:
    found = next((name for name in _DEPTHS if isinstance(fields.get(name), int)), None)
    if found is None:
        raise ValueError(f"the config names its number of layers by none of {', '.join(_DEPTHS)}")
    return found


def _name_of(config: PreTrainedConfig, part: PreTrainedConfig) -> str:
    return next(name for name in config.sub_configs if getattr(config, name, None) is part)


def _random_model(config: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: PreTrainedModel = model_class(config).from_config(config, dtype=torch.float32, trust_remote_code=False)
        roughen(model, width=config.get_text_config().hidden_size)
    return torch.nn.Module.to(model, dtype)


@torch.no_grad()
def roughen(model: torch.nn.Module, *, width: int) -> None:
    """Make every weight of a model of this hidden size matter, and a state last for many tokens."""
    for name, parameter in model.named_parameters():
        if name.endswith(".A_log"):
            parameter.uniform_(-4.0, -1.0)
        elif parameter.ndim > 1:
            if not parameter.any():
                parameter.normal_(std=_DRAWN)
            parameter.mul_(max(1.0, _WIDENED / math.sqrt(width)))
        else:
            parameter.add_(torch.randn_like(parameter), alpha=_NOISE)
            layer = model.get_submodule(name.removesuffix(_QUERY_NORM)) if name.endswith(_QUERY_NORM) else None
            if getattr(layer, "scaling", None) == 1.0:
                # It has learned what others divide their scores by, without which nearly all weight is on one token.
                parameter.mul_(len(parameter) ** -0.5)
    for _, buffer in stored_weights(model):
        if not isinstance(buffer, torch.nn.Parameter) and buffer.is_floating_point():
            buffer.add_(torch.randn_like(buffer), alpha=_NOISE)


def _holds_weights(path: Path) -> bool:
    return path.suffix in {".safetensors", ".bin", ".pth", ".gguf", ".pt"} or path.name.endswith(".index.json")
