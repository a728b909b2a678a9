"""The language models of Gemma 4 alone: layers with a window and without, whose heads differ in size and rotation. In
the small ones (E2B, E4B) each layer has embeddings of its own, and the last ones take keys and values of others. In the
large ones (26B, 31B) keys are values in layers without a window."""

from dataclasses import dataclass
from typing import Any, Final

from typing_extensions import override

from rl_core.families.family import TINY_WINDOW, EngineNeeds, Family, Fields
from rl_core.families.vision import TinySizes

_OF_A_LAYER: Final = 16
"""Width of the embeddings of each layer in a tiny model."""


@dataclass(frozen=True, kw_only=True)
class TwoKindsOfHeads(Family):
    """The layers of Gemma 4."""

    @override
    def tiny_fields(self, source: TinySizes, *, vocab_size: int) -> dict[str, Any]:
        fields = super().tiny_fields(source, vocab_size=vocab_size)
        text = fields.get("text_config", fields)
        text |= {"vocab_size_per_layer_input": vocab_size, **_kinds(source.num_layers)}
        return fields


def _kinds(layers: int) -> Fields:
    """With a window and without in turn, the last one without. From four on, the second half takes keys and values."""
    kinds = [("full_attention", "sliding_attention")[number % 2] for number in range(layers)]
    return {"layer_types": kinds[::-1], "num_kv_shared_layers": layers // 4 * 2}


def tiny_text(head_size: int) -> Fields:
    """Further fields of the text config of the tiny models. Layers without a window have one key for each two of the
    others, which is the value too, as in the larger models."""
    return {
        "head_dim": head_size,
        "global_head_dim": 2 * head_size,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "sliding_window": TINY_WINDOW,
        "hidden_size_per_layer_input": _OF_A_LAYER,
        "use_double_wide_mlp": True,
        "final_logit_softcapping": 30.0,
        "pad_token_id": 0,  # stands for images where a layer has embeddings of its own
    }


ENGINE: Final = EngineNeeds(unadapted=("k_proj",))
"""Where keys are values, vLLM would add an adapter to the keys alone."""

FAMILY: Final = TwoKindsOfHeads(
    name="gemma4_text", model_type="gemma4_text", ties_embeddings=True, tiny_text=tiny_text, engine=ENGINE
)
