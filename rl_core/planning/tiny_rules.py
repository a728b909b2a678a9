"""Sizes of a tiny random model that do not fit together."""

from collections.abc import Iterator

from rl_core.config.model import TinyModel
from rl_core.planning.problem import Problem


def tiny_size_problems(source: TinyModel) -> Iterator[Problem]:
    """Every such pair of sizes."""
    if source.num_heads % source.num_key_value_heads:
        yield Problem(
            where="model.source.num_key_value_heads",
            what=f"{source.num_heads} heads do not share {source.num_key_value_heads} key/value heads evenly",
            fix="set it to a divisor of model.source.num_heads",
        )
    unit = 8 * source.num_heads
    if source.hidden_size % unit:
        yield Problem(
            where="model.source.hidden_size",
            what=f"{source.hidden_size} is no multiple of 8 x num_heads ({unit}): rotary embeddings split each head in "
            "eighths",
            fix=f"set it to {-(-source.hidden_size // unit) * unit}, or change model.source.num_heads",
        )
    unit = 4 * source.num_heads
    if source.family.endswith("_vl") and source.vision_hidden_size % unit:
        yield Problem(
            where="model.source.vision_hidden_size",
            what=f"{source.vision_hidden_size} is no multiple of 4 x num_heads ({unit})",
            fix=f"set it to {-(-source.vision_hidden_size // unit) * unit}, or change model.source.num_heads",
        )
