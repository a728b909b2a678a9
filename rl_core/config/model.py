"""The policy: which checkpoint, or which tiny random model, and how it is run."""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator

from rl_core.section import Section

_LONGEST_PATTERN = 1000

Family = Literal["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen2_5", "llama"]


class PretrainedModel(Section):
    """A checkpoint in Hugging Face format."""

    type: Literal["pretrained"]
    """Selects this kind."""
    path: str
    """Folder, or `owner/name` on the hub."""
    revision: str | None = None
    """Branch, tag or commit on the hub; null is its main branch. Name a commit where it matters: a branch that moves
    later reruns no finished stage."""


class TinyModel(Section):
    """A small random model of a real family with a tokenizer trained on the prepared text; needs no download."""

    type: Literal["tiny"]
    """Selects this kind."""
    family: Family = "qwen2_5_vl"
    """Architecture."""
    hidden_size: int = Field(default=128, ge=16, le=65_536, multiple_of=16)
    """Width of the language model."""
    num_layers: int = Field(default=4, ge=1, le=1024)
    """Depth of the language model."""
    num_heads: int = Field(default=4, ge=1, le=1024)
    """Attention heads."""
    num_key_value_heads: int = Field(default=2, ge=1, le=1024)
    """Key/value heads (grouped-query attention)."""
    intermediate_size: int = Field(default=256, ge=16, le=262_144)
    """Width of the feed-forward layers."""
    vision_depth: int = Field(default=4, ge=1, le=1024)
    """Depth of the vision tower, for the VL families."""
    vision_hidden_size: int = Field(default=128, ge=16, le=65_536)
    """Width of the vision tower."""
    max_vocab_size: int = Field(default=512, ge=300, le=1_048_576)
    """Largest vocabulary of the byte-level BPE trained on the spot."""


ModelSource = Annotated[PretrainedModel | TinyModel, Field(discriminator="type")]


class LoraConfig(Section):
    """Small matrices beside the frozen weights are what RL trains (Hu et al. 2021, arXiv:2106.09685)."""

    rank: int = Field(default=64, ge=1)
    """Inner size of an adapter."""
    alpha: float = Field(default=64.0, gt=0.0)
    """An adapter's product is scaled by alpha / rank."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """Which linear layers: `all-linear`, a regular expression of whole names, or a list of name endings."""
    exclude_modules: str | tuple[str, ...] | None = ".*visual.*"
    """Which of these not, in the same forms; the default leaves the vision tower as it is."""

    @field_validator("target_modules", "exclude_modules")
    @classmethod
    def _text_is_a_pattern(cls, modules: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        if isinstance(modules, str):
            if len(modules) > _LONGEST_PATTERN:
                raise ValueError(
                    f"a regular expression has at most {_LONGEST_PATTERN} characters; or give a list of names"
                )
            try:
                re.compile(modules)
            except (re.error, OverflowError, RecursionError) as error:
                raise ValueError(f"a text must be a regular expression, and {error}; or give a list of names") from None
        return modules


class ModelConfig(Section):
    """The policy's weights, number format and attention."""

    source: ModelSource
    """Where the weights come from."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Number format of forward, backward and engine, as EasyR1's mp_param_dtype: bfloat16 is mixed precision, for the
    optimizer moves float32 master weights in both (actor.optim.strategy)."""
    attention: Literal["auto", "sdpa", "flash"] = "auto"
    """Attention kernel of the trainer; `auto` takes flash where flash-attn imports on a GPU, else sdpa."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    log_prob_chunk_tokens: int = Field(default=2048, ge=1)
    """Tokens whose logits exist at one time in the output head."""
    freeze_vision_tower: bool = False
    """RL leaves the vision tower as it is, the layers that join its features to the text among it. A cold start trains
    it all the same."""
    lora: LoraConfig | None = None
    """RL trains adapters and nothing else; null trains the weights, as a cold start always does."""
