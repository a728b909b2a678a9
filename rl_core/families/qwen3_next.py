"""Qwen3-Next, text with experts. Layers and experts are those of Qwen3.5 with experts, in other matrices."""

from typing import Any, Final

from rl_core.families.family import GATED_DELTA_RULE, Family
from rl_core.families.patch_grid import SPECIAL_TOKENS, rope_parameters
from rl_core.families.qwen3_5_moe import FAMILY as QWEN3_5_MOE


def _text(head_size: int) -> dict[str, Any]:
    fields = QWEN3_5_MOE.tiny_text(head_size)
    return {**fields, **rope_parameters(partial_rotary_factor=0.5), "norm_topk_prob": True}


FAMILY: Final = Family(
    name="qwen3_next",
    model_type="qwen3_next",
    tiny_text=_text,
    carries_state=True,
    engine=GATED_DELTA_RULE,
    unused_tokens=SPECIAL_TOKENS,
)
