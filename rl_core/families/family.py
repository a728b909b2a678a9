"""What a model family says of itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rl_core.families.vision import TinySizes, Vision

Fields = Mapping[str, Any]
"""Fields of a config.json."""

MAX_POSITIONS: Final = 32768
"""Longest sequence of a tiny model, in tokens."""

TINY_WINDOW: Final = 16
"""Tokens that a layer with a sliding window sees in a tiny model: fewer than its prompts have."""


def _nothing(head_size: int) -> Fields:
    return {}


@dataclass(frozen=True, kw_only=True)
class EngineNeeds:
    """What of vLLM a family can have.

    Attributes:
        prefix_caching: Whether the requests of a prompt share what is computed of it. Where layers carry a state, vLLM
            shares it only between chunks of a prompt, which a seeded request on a CPU cannot be computed in.
        cpu_dtypes: The number formats in which vLLM computes it on a CPU.
        why_cpu_dtypes: Why not in others.
        adapters: Whether vLLM has adapters for it.
        unadapted: Last parts of the names of linear layers for which vLLM has no adapters.
    """

    prefix_caching: bool = True
    cpu_dtypes: tuple[str, ...] = ("float32", "bfloat16")
    why_cpu_dtypes: str = ""
    adapters: bool = True
    unadapted: tuple[str, ...] = ()


GATED_DELTA_RULE: Final = EngineNeeds(
    prefix_caching=False,
    cpu_dtypes=("bfloat16",),
    why_cpu_dtypes="vLLM's gated delta rule for a CPU computes in bfloat16 alone",
)
"""Of layers with a gated delta rule."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A model family.

    Attributes:
        name: As `model.source.family` calls it.
        model_type: That of its config.json.
        vision: How its models see; None for text models.
        ties_embeddings: Whether the output head of its tiny models is the embedding, as in the smallest published
            model, so that both cases are covered.
        tiny_text: Head size -> further fields of the text config of its tiny models.
        carries_state: Whether layers carry a state from token to token (`rl_core.models.tree_recurrence`).
        engine: What of vLLM it can have.
        unused_tokens: Tokens of the tokenizers of a text family that stand for images and videos in other families.
        published: [name on the hub] -> what the config.json of a published model says of its layers.
    """

    name: str
    model_type: str
    vision: Vision | None = None
    ties_embeddings: bool = False
    tiny_text: Callable[[int], Fields] = _nothing
    carries_state: bool = False
    engine: EngineNeeds = EngineNeeds()
    unused_tokens: tuple[str, ...] = ()
    published: Mapping[str, Fields] = field(default_factory=dict)

    @property
    def reserved_tokens(self) -> tuple[str, ...]:
        """Tokens that stand for images and videos, which are never sampled."""
        return self.unused_tokens if self.vision is None else self.vision.special_tokens

    def tiny_fields(self, source: TinySizes, *, vocab_size: int) -> dict[str, Any]:
        """Every field of the config.json of a tiny model that decides its layers: all of it but token ids and number
        format."""
        text = {
            "vocab_size": vocab_size,
            "hidden_size": source.hidden_size,
            "intermediate_size": source.intermediate_size,
            "num_hidden_layers": source.num_layers,
            "num_attention_heads": source.num_heads,
            "num_key_value_heads": source.num_key_value_heads,
            "max_position_embeddings": MAX_POSITIONS,
            "rms_norm_eps": 1e-6,
            "pad_token_id": None,  # that of some published models is no row of a small embedding
            **self.tiny_text(source.hidden_size // source.num_heads),
        }
        fields = {"model_type": self.model_type, "tie_word_embeddings": self.ties_embeddings}
        if self.vision is None:
            return fields | text
        return fields | {"text_config": text} | self.vision.tiny_fields(source)


def text_fields(
    model_type: str,
    hidden_size: int,
    intermediate_size: int,
    layers: int,
    heads: int,
    key_value_heads: int,
    *,
    vocab_size: int,
    positions: int,
    tied: bool = False,
    **others: Any,
) -> dict[str, Any]:
    """Fields of a published config.json that decide the layers of its language model."""
    return {
        "model_type": model_type,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
        "vocab_size": vocab_size,
        "max_position_embeddings": positions,
        "tie_word_embeddings": tied,
        **others,
    }
