"""What the passes of the vision tower keep in memory. Ranks that share a sequence compute all of its images each."""

from dataclasses import dataclass
from typing import Final

from rl_core.config.run import RunConfig
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.passes import Pass
from rl_core.planning.tiny_model import vision_patch_size
from rl_core.planning.training_state import BYTES

MERGER: Final = 6
"""Arrays of the tower's width that the layers keep which join its patches to tokens."""

FORWARD: Final = 18
"""Arrays of the tower's width that exist at the peak of a pass without a gradient, where queries and keys are rotated
in float32. Measured by `python -m benchmarks.gpu_memory`."""

_BLOCK: Final = "model.visual.blocks.0."
_FIRST: Final = ("mlp.gate_proj", "mlp.linear_fc1", "mlp.fc1")
"""The first layer of a block's feed-forward: of a gated one, of Qwen3-VL's and of Qwen2-VL's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tower:
    """Blocks of a vision tower, their width, that of their feed-forward, and whether that is gated."""

    blocks: int
    width: int
    inner: int
    is_gated: bool


def vision_kept_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """Bytes that the vision tower keeps of a micro-batch; 0 where it is not trained and keeps nothing. With
    checkpointing only a block's input is kept."""
    tower = _trained_tower(config, sizes)
    if tower is None:
        return 0
    block = tower.width if config.model.recomputes_activations else _block_numbers(config, tower)
    return _bytes(config, passing, tower.blocks * block + MERGER * tower.width) + _pixel_bytes(config, sizes, passing)


def vision_block_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """Bytes of the block that is in its backward pass: as `layer_bytes`."""
    tower = _trained_tower(config, sizes)
    if tower is None:
        return 0
    again = _block_numbers(config, tower) - tower.width if config.model.recomputes_activations else 0
    gradients = (2 if tower.is_gated else 1) * tower.inner + tower.width
    return _bytes(config, passing, again + gradients)


def vision_forward_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass, *, copies: int = FORWARD) -> int:
    """Bytes of a pass without a gradient, with so many arrays of the tower's width at its peak."""
    tower = _tower(sizes)
    if tower is None:
        return 0
    return _bytes(config, passing, copies * tower.width) + _pixel_bytes(config, sizes, passing)


def _trained_tower(config: RunConfig, sizes: ModelSizes) -> _Tower | None:
    is_trained = config.model.lora is None and not config.model.freeze_vision_tower
    return _tower(sizes) if is_trained else None


def _block_numbers(config: RunConfig, tower: _Tower) -> int:
    """Numbers that a block keeps of a patch: queries, keys and values, the rotated queries and keys, the attention's
    output, the arrays of the feed-forward, and those of two norms. A gated tower has RMS norms (as `_norm_copies` of
    the language model counts them); the others have LayerNorm."""
    norm = 2 if not tower.is_gated else 3 if config.model.dtype == "float32" else 4
    return (2 * norm + 6) * tower.width + (4 if tower.is_gated else 2) * tower.inner


def _pixel_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """The patches themselves in float32, and in the model's number format: three channels, two frames."""
    numbers = 3 * 2 * vision_patch_size(sizes.family) ** 2
    return passing.patches * numbers * (4 + (2 if config.model.dtype == "bfloat16" else 0))


def _bytes(config: RunConfig, passing: Pass, numbers: int) -> int:
    return passing.patches * numbers * BYTES[config.model.dtype]


def _tower(sizes: ModelSizes) -> _Tower | None:
    """From the inputs plus outputs of the linear layers of a block."""
    if not sizes.vision_blocks:
        return None
    layers = sizes.linear_layers
    width = layers[f"{_BLOCK}attn.qkv"] // 4  # one input, three outputs
    inner = next(layers[_BLOCK + name] for name in _FIRST if _BLOCK + name in layers) - width
    return _Tower(blocks=sizes.vision_blocks, width=width, inner=inner, is_gated=_BLOCK + _FIRST[0] in layers)
