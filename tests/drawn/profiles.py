"""What a drawn configuration cannot change without another engine or other prepared rows, as parts of its tree."""

from itertools import product
from typing import Any, Final

from rl_core.families.registry import FAMILIES
from tests.drawn.rows import CLIPS, PAGES, TEXT
from tests.rl_core.matrix import MATRIX

Tree = dict[str, Any]

VISION: Final = tuple(name for name in MATRIX if FAMILIES[name].vision is not None)
_VIDEOS: Final = tuple(name for name in VISION if getattr(FAMILIES[name].vision, "video_text", None) is not None)
_TEXT: Final = tuple(name for name in MATRIX if name not in VISION)

_SIZES: Final = {
    "hidden_size": 64,
    "num_layers": 2,
    "num_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 48,
    "vision_depth": 2,
    "vision_hidden_size": 32,
}


def _scenes(size: int, seed: int) -> Tree:
    return {"type": "counting", "size": size, "scene_seed": seed, "image_size": 56}


def _file(path: str) -> Tree:
    return {"type": "local", "path": path}


def _mixture(split: str, size: int, seed: int) -> Tree:
    parts = {"scenes": _scenes(size, seed), "sums": _file(TEXT.format(split))}
    return {"type": "mixture", "sources": parts}


ROWS: Final[dict[str, Tree]] = {
    "scenes": {"train": _scenes(10, 1), "validation": _scenes(4, 2), "prompt_template": "prompt.jinja"},
    "pages": {"train": _file(PAGES.format("train")), "validation": _file(PAGES.format("validation"))},
    "clips": {"train": _file(CLIPS.format("train")), "validation": _file(CLIPS.format("validation")), "video_fps": 4.0},
    "sums": {
        "train": _file(TEXT.format("train")),
        "validation": _file(TEXT.format("validation")),
        "curriculum": {"column": "level"},
        "system_prompt": "Count.",
    },
    "mixture": {"train": _mixture("train", 6, 1), "validation": _mixture("validation", 3, 2)},
}


def profile(
    family: str,
    dtype: str,
    rows: str,
    *,
    response: int = 8,
    sequences: int = 16,
    cold_start: Tree | None = None,
    **sizes: int,
) -> Tree:
    """The part of a configuration that decides model, prepared rows and engine."""
    return {
        "experiment": "drawn",
        "seed": 3,
        "data": {**ROWS[rows], "max_prompt_length": 320},
        "model": {"source": {"type": "tiny", "family": family, **_SIZES, **sizes}, "dtype": dtype},
        "rollout": {"max_response_length": response, "max_num_seqs": sequences},
        "cold_start": cold_start,
    }


_COLD: Final = {"steps": 1, "batch_size": 2, "target_template": "<answer>{{ answer }}</answer>"}

FEW: Final = (
    profile("qwen2_5_vl", "float32", "mixture"),
    profile("qwen2_vl", "bfloat16", "scenes", response=1),
    profile("qwen3_vl", "float32", "pages", sequences=2),
    profile("qwen2_5", "bfloat16", "sums", cold_start=_COLD),
    profile("llama", "float32", "sums", response=12),
)
"""One of every kind, for `make test`."""


def _first(family: str) -> str:
    """float32, where vLLM has it on a CPU."""
    return FAMILIES[family].engine.cpu_dtypes[0]


def _formats(families: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(family, dtype) for family in families for dtype in FAMILIES[family].engine.cpu_dtypes]


MANY: Final = (
    *FEW,
    *(
        profile(family, dtype, rows, response=7, cold_start=_COLD if rows == "mixture" else None)
        for (family, dtype), rows in product(_formats(VISION), ("scenes", "pages", "mixture"))
    ),
    *(profile(family, _first(family), "clips", response=3) for family in _VIDEOS),
    *(
        profile(family, _first(family), "scenes", vision_depth=1, num_layers=1, num_key_value_heads=2)
        for family in VISION
    ),
    *(profile(family, dtype, "sums", sequences=1) for family, dtype in _formats(_TEXT)),
)
"""Every family of the matrix with every number format and kind of rows, for `make test-slow`."""
