"""Loads and writes models as Hugging Face folders, and finds the token ids that end a response or are banned."""

import logging
import shutil
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)
from transformers.initialization import no_init_weights

from rl_core.config.model import ModelConfig
from rl_core.cpu_switches import CPU_MODEL
from rl_core.device import takes_cpu_code
from rl_core.families.registry import reserved_tokens, vision_of, vision_token_ids
from rl_core.models.attention import attention_backend, use_tree_attention
from rl_core.models.named_weights import named_hf_weights, save_as_published
from rl_core.models.replaced_layers import use_float32_logits, use_patch_projections
from rl_core.models.tree_recurrence import use_tree_recurrence
from rl_core.planning.model_tokens import ModelTokens

_logger = logging.getLogger(__name__)

# The files of tokenizer, processor and chat template; the model writes weights and config itself.
_PROCESSOR_FILES = (
    "added_tokens.json",
    "chat_template.*",
    "merges.txt",
    "preprocessor_config.json",
    "processor_config.json",
    "special_tokens_map.json",
    "tokenizer*",
    "video_preprocessor_config.json",
    "vocab.*",
)


def load_model(folder: Path, config: ModelConfig, *, with_weights: bool = True) -> PreTrainedModel:
    """Load a model in `config.dtype`, on the CPU, with tree attention and activation checkpointing set up; without
    weights, their memory is not touched. Raises ValueError if the configured attention does not run here, or a layer
    carries a state that is not known to branch, and OSError if the folder has no loadable checkpoint."""
    architecture = load_architecture(folder)
    _log_noise(tuple(_without_noise(architecture)))
    factory = model_class(architecture)
    dtype = getattr(torch, config.dtype)
    if with_weights:
        model = _with_weights(factory, folder, architecture, dtype)
    else:
        model = _without_weights(factory, architecture, dtype)
    use_tree_attention(model, attention_backend(config))
    use_tree_recurrence(model)
    use_patch_projections(model)
    use_float32_logits(model)
    if (vision := vision_of(architecture.model_type)) is not None:
        vision.prepare(model)
    if takes_cpu_code(CPU_MODEL):
        from rl_core.models.cpu.layers import use_cpu_layers

        use_cpu_layers(model)
    if config.recomputes_activations:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        # transformers has the embeddings require a gradient, which only reentrant checkpoints need. A frozen vision
        # tower would keep what it computes, and make a backward pass whose result nobody takes.
        model.disable_input_require_grads()
        model.train()  # in evaluation mode transformers keeps every activation
    return model


def _without_noise(architecture: PreTrainedConfig) -> Iterator[str]:
    """Set dropout and the jitter of routers to 0 in a config and its parts; yields what was not. RL needs the
    probabilities of the model that sampled, and activation checkpointing a model in training mode."""
    for name, value in list(vars(architecture).items()):
        if isinstance(value, PreTrainedConfig):
            yield from _without_noise(value)
        elif ("drop" in name or "jitter" in name) and isinstance(value, float) and value != 0.0:
            setattr(architecture, name, 0.0)
            yield f"{name}={value}"


@cache
def _log_noise(fields: tuple[str, ...]) -> None:
    """Once in a process, because a run loads its model several times."""
    if fields:
        _logger.info("the model's config has %s; all of it is 0 in RL", ", ".join(fields))


def _with_weights(factory: Any, folder: Path, architecture: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    try:
        model: PreTrainedModel = factory.from_pretrained(
            folder, config=architecture, dtype=dtype, trust_remote_code=False
        )
    except SafetensorError as error:  # which names no file
        raise OSError(f"the weights in {folder} are damaged ({error}): copy or download the model again") from error
    return model


def _without_weights(factory: Any, architecture: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    with no_init_weights():
        model: PreTrainedModel = factory.from_config(architecture, dtype=dtype, trust_remote_code=False)
    model.tie_weights()  # which is part of what was left out
    return model.eval()


def load_processor(folder: Path) -> ProcessorMixin | PreTrainedTokenizerBase:
    """The processor of a vision-language model, or the tokenizer of a text model."""
    loader = AutoProcessor if has_vision(load_architecture(folder)) else AutoTokenizer
    processor: ProcessorMixin | PreTrainedTokenizerBase = loader.from_pretrained(folder, trust_remote_code=False)
    return processor


def load_architecture(folder: Path) -> PreTrainedConfig:
    """The model's config. Raises OSError if the folder has none."""
    # Without an explicit False, transformers asks at the terminal whether to run the model's own code.
    architecture: PreTrainedConfig = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    return architecture


def model_class(architecture: PreTrainedConfig) -> Any:
    """transformers' class that makes the model of a config."""
    return AutoModelForImageTextToText if has_vision(architecture) else AutoModelForCausalLM


def has_vision(architecture: PreTrainedConfig) -> bool:
    """Whether the model takes images."""
    return "vision_config" in architecture.sub_configs


def write_hf_folder(
    model: PreTrainedModel,
    *,
    processor_folder: Path,
    folder: Path,
    weights: Iterable[tuple[str, torch.Tensor]] | None = None,
) -> None:
    """Write weights (safetensors, adapters merged), config, and a generation config that names every token that ends a
    response. Copy the files of tokenizer, processor and chat template from `processor_folder`, byte for byte, so that
    the trained model gets prompts of the same form as in training. `weights` are those of the model, unless they are
    given."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = named_hf_weights(model) if weights is None else weights
    ends = ModelTokens.read(processor_folder).response_ends()
    if ends.difference is not None:  # other software reads the generation config alone
        model.generation_config.eos_token_id = list(ends.ids)
    save_as_published(model, folder, ((name, weight.cpu()) for name, weight in weights))
    for pattern in _PROCESSOR_FILES:
        for path in sorted(processor_folder.glob(pattern)):
            shutil.copyfile(path, folder / path.name)


def stop_token_ids(folder: Path) -> tuple[int, ...]:
    """The ids that end a response. Raises ValueError if there is none that can be sampled."""
    tokens = ModelTokens.read(folder)
    try:
        return tokens.response_ends().ids
    except ValueError as error:
        raise ValueError(f"{folder}: {error}; name one as eos_token_id in its generation_config.json") from None


def banned_token_ids(folder: Path) -> tuple[int, ...]:
    """Ids that must never be sampled, in ascending order: vision tokens (a sampled placeholder of an image breaks the
    trainer's forward pass), the padding token unless it ends a sequence, and ids of the padded embedding that have no
    token."""
    architecture = load_architecture(folder)
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        folder, config=architecture, trust_remote_code=False
    )
    vocabulary = tokenizer.get_vocab()
    banned = set(vision_token_ids(architecture.to_dict()).values())
    banned |= {vocabulary.get(token) for token in reserved_tokens(architecture.to_dict())}
    banned |= set(range(architecture.get_text_config().vocab_size)) - set(vocabulary.values())
    banned |= {tokenizer.pad_token_id} - set(stop_token_ids(folder))
    return tuple(sorted(token for token in banned if token is not None))
