"""The section `model`: the checkpoint or tiny random model that is trained, and how it is computed."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator
from typing_extensions import override

from rl_core.families.registry import FAMILIES, vision_modules
from rl_core.problem import Problem
from rl_core.section import Section

if TYPE_CHECKING:
    FamilyName = str
else:
    FamilyName = Literal[tuple(FAMILIES)]


class PretrainedModel(Section):
    """A checkpoint in Hugging Face format."""

    type: Literal["pretrained"]
    path: str
    """Folder, or `owner/name` on the hub."""
    revision: str | None = None
    """Branch, tag or commit on the hub; null is the main branch."""


class TinyModel(Section):
    """A small random model of a real family, with a tokenizer that is trained on the prepared text."""

    type: Literal["tiny"]
    family: FamilyName = "qwen2_5_vl"
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
    """Largest vocabulary of the tokenizer."""

    @override
    def problems(self) -> Iterator[Problem]:
        if self.num_heads % self.num_key_value_heads:
            yield Problem(
                "num_key_value_heads",
                f"{self.num_heads} heads do not share {self.num_key_value_heads} key/value heads evenly",
                "set it to a divisor of model.source.num_heads",
            )
        unit = 8 * self.num_heads
        if self.hidden_size % unit:
            yield Problem(
                "hidden_size",
                f"{self.hidden_size} is no multiple of 8 x num_heads ({unit}): rotary embeddings split each head in "
                "eighths",
                f"set it to {-(-self.hidden_size // unit) * unit}, or change model.source.num_heads",
            )
        unit = 4 * self.num_heads
        if FAMILIES[self.family].vision is not None and self.vision_hidden_size % unit:
            yield Problem(
                "vision_hidden_size",
                f"{self.vision_hidden_size} is no multiple of 4 x num_heads ({unit})",
                f"set it to {-(-self.vision_hidden_size // unit) * unit}, or change model.source.num_heads",
            )


ModelSource = Annotated[PretrainedModel | TinyModel, Field(discriminator="type")]


class LoraConfig(Section):
    """LoRA: RL trains small matrices beside the frozen weights (Hu et al. 2021, arXiv:2106.09685)."""

    rank: int = Field(default=64, ge=1)
    """Rank of an adapter."""
    alpha: float = Field(default=64.0, gt=0.0)
    """An adapter's product is scaled by alpha / rank."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """Linear layers that get an adapter: `all-linear`, a regular expression of the whole name, or a list of name
    endings."""
    exclude_modules: str | tuple[str, ...] | None = "vision-tower"
    """Linear layers that get no adapter: `vision-tower`, with the layers that join it to the language model, a regular
    expression of the whole name, or a list of name endings."""
    generator_weights: Literal["merged", "separate"] = "merged"
    """Whether the generator adds each adapter to its weight (`merged`), or computes with both as the trainer does, so
    that bfloat16 does not round an adapter away (`separate`)."""

    @property
    def excluded(self) -> str | tuple[str, ...] | None:
        """`exclude_modules`, with a regular expression in place of the word."""
        return vision_modules() if self.exclude_modules == "vision-tower" else self.exclude_modules

    @field_validator("target_modules", "exclude_modules")
    @classmethod
    def _text_is_a_pattern(cls, modules: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        if isinstance(modules, str):
            try:
                re.compile(modules)
            except (re.error, OverflowError, RecursionError) as error:
                raise ValueError(f"a text must be a regular expression, and {error}; or give a list of names") from None
        return modules


class ModelConfig(Section):
    """The policy's weights, number format and attention."""

    source: ModelSource
    """Where the weights come from."""
    family: str | None = None
    """A model family of your own, `path/to/file.py:FAMILY` or `package.module:FAMILY`, for a checkpoint that no family
    of Sightline is right for."""
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    """Number format of forward pass, backward pass and generator; the master weights are float32."""
    attention: Literal["auto", "sdpa", "varlen", "flash"] = "auto"
    """Attention kernel of the trainer; `auto` is sdpa, but on a GPU in bfloat16 flash if flash-attn can be imported,
    else varlen, PyTorch's own."""
    gradient_checkpointing: bool | Literal["auto"] = "auto"
    """Recompute activations in the backward pass: less memory, about a third more time. `auto` does it on a GPU where
    the run does not fit otherwise."""
    log_prob_chunk_tokens: int = Field(default=2048, ge=1)
    """Tokens whose logits are computed at one time."""
    freeze_vision_tower: bool = False
    """RL does not train the vision tower and the layers that join it to the language model; a cold start does."""
    lora: LoraConfig | None = None
    """RL trains adapters only; null trains all weights, as a cold start always does."""

    @override
    def problems(self) -> Iterator[Problem]:
        if self.family is not None and isinstance(self.source, TinyModel):
            yield Problem(
                "family", "tiny models are of the families of Sightline", "leave it out, or take a pretrained model"
            )
        if self.lora is not None and self.freeze_vision_tower:
            yield Problem(
                "freeze_vision_tower",
                "model.lora freezes every weight, and its exclude_modules says where no adapters are",
                "set it to false; the default of model.lora.exclude_modules leaves the vision tower alone",
            )

    @property
    def generator_lora(self) -> LoraConfig | None:
        """The adapters that the generator has besides its weights; None if it gets merged weights."""
        return self.lora if self.lora is not None and self.lora.generator_weights == "separate" else None

    @property
    def recomputes_activations(self) -> bool:
        """Whether activations are computed again in the backward pass; `auto` counts as false until it is resolved."""
        return self.gradient_checkpointing is True
