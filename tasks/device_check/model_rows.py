"""The rows on which a given model is checked: questions of several lengths, with images of many sizes if it sees."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from rl_core.device import computing_device
from rl_core.families.registry import family_of
from rl_core.files import read_json
from rl_core.planning.model_sizes import read_sizes
from tasks.device_check.check import Setting

_QUESTIONS: Final = (
    "How many?",
    "How many objects are there? Reply with the number inside <answer></answer>.",
    "Count the red ones, then the blue ones, and add both numbers. " * 4,
)

_SIZES: Final = (
    ((84, 84),),
    (),
    ((280, 56), (57, 131), (200, 200)),
    ((1, 1),),
    ((1, 20),),
    ((640, 480),),
    ((33, 660), (448, 448)),
    ((224, 448),),
)
"""Width and height of the images of each row: none, one, and several; single pixels, twenty times as long as wide, and
more than one tile."""

_REPEATED: Final = 4
"""How often each of them comes, so that there are rows enough where a processor refuses some sizes."""

_LONGEST_PROMPT: Final = 4096


def model_sections(setting: Setting) -> Mapping[str, Any]:
    """The sections `data` and `model` of a run of `setting.model`, with rows that are written to `setting.folder`."""
    assert setting.model is not None, "a check of a given model without one"
    fields = read_json(setting.model / "config.json")
    sees = "vision_config" in fields
    sizes = read_sizes(setting.model / "config.json")
    longest = _LONGEST_PROMPT if sizes is None else min(_LONGEST_PROMPT, sizes.max_positions // 2)
    rows = {split: _source(setting.folder / split, split, sees=sees) for split in ("train", "validation")}
    return {
        "data": rows | {"max_prompt_length": longest, "max_bad_share": 1.0},
        "model": {
            "source": {"type": "pretrained", "path": str(setting.model)},
            "dtype": generator_dtype(fields),
            "family": setting.family,
        },
    }


def generator_dtype(fields: Mapping[str, Any]) -> str:
    """The number format of a model's folder with these fields in its config.json, or the one in which vLLM computes it
    on a CPU."""
    known = family_of(fields).engine.cpu_dtypes
    own: str = fields["dtype"]
    return own if own in known or computing_device().type == "cuda" else known[0]


def _source(folder: Path, split: str, *, sees: bool) -> Mapping[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in _rows(folder, split, sees=sees)))
    columns = {} if sees else {"image_key": None, "video_key": None}
    return {"type": "local", "path": str(path), "columns": columns}


def _rows(folder: Path, split: str, *, sees: bool) -> Iterator[Mapping[str, Any]]:
    for number, sizes in enumerate(_SIZES * _REPEATED):
        question = f"{_QUESTIONS[number % len(_QUESTIONS)]} ({split} {number})"
        if not sees:
            yield {"problem": question, "answer": "1"}
            continue
        images = [_image(folder / f"{number}-{place}.png", size) for place, size in enumerate(sizes)]
        yield {"problem": "<image>" * len(images) + question, "answer": "1", "images": images}


def _image(path: Path, size: Sequence[int]) -> str:
    width, height = size
    seed = [*str(path.relative_to(path.parents[1])).encode()]
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path, compress_level=0)
    return str(path)
