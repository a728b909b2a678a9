"""The files that drawn configurations name, relative to the folder that they run in: rows and reward functions."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

from tests.rl_core.data.samples import write_video

TEXT, PAGES, CLIPS = "rows/sums-{}.jsonl", "rows/pages-{}.jsonl", "rows/clips-{}.jsonl"
EASYR1_BATCH, EASYR1_SEQUENTIAL, OURS = "rewards/batch.py:judge", "rewards/one.py:judge", "rewards/ours.py:judge"

_ROWS = {"train": 10, "validation": 4}

_BATCH = """
REWARD_NAME = "length"
REWARD_TYPE = "batch"

def judge(reward_inputs, step=3):
    overall = [float(len(r["response"]) % step) for r in reward_inputs]
    return [{"overall": value, "accuracy": float(value > 0)} for value in overall]
"""

_SEQUENTIAL = """
REWARD_NAME = "length"
REWARD_TYPE = "sequential"

def judge(reward_input, step=2):
    value = float(len(reward_input["response"]) % step)
    return {"overall": value, "format": 0.0, "accuracy": value}
"""

_OURS = """
async def judge(sample, step=2):
    value = float(sum(map(ord, sample.response)) % step)
    return {"overall": value - len(sample.response) / 100, "accuracy": value}
"""


def write_workplace(folder: Path) -> None:
    """Write everything that a drawn configuration may name."""
    for name in ("rows", "rewards"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name, text in (("batch", _BATCH), ("one", _SEQUENTIAL), ("ours", _OURS)):
        (folder / "rewards" / f"{name}.py").write_text(text)
    (folder / "prompt.jinja").write_text("{{ content }} Reply with the number inside <answer></answer>.")
    for number, (split, size) in enumerate(_ROWS.items()):
        noise = np.random.default_rng(number)
        _write(folder / TEXT.format(split), [_sum(split, row) for row in range(size)])
        _write(folder / PAGES.format(split), [_page(folder, split, row, noise) for row in range(size)])
        _write(folder / CLIPS.format(split), [_clip(folder, split, row, noise) for row in range(size)])


def _sum(split: str, row: int) -> dict[str, object]:
    """A question without images; `level` orders a curriculum."""
    shift = 0 if split == "train" else 1
    return {"problem": f"What is {row} + {shift}?", "answer": str(row + shift), "level": -row, "kind": "sum"}


def _page(folder: Path, split: str, row: int, noise: np.random.Generator) -> dict[str, object]:
    """A question with none, one or two images of different shapes."""
    sizes = ([], [(56, 56)], [(84, 56), (56, 112)])[row % 3]
    paths = [f"{split}-{row}-{place}.png" for place in range(len(sizes))]
    for path, (width, height) in zip(paths, sizes, strict=True):
        Image.fromarray(noise.integers(0, 256, (height, width, 3), np.uint8)).save(folder / "rows" / path)
    places = " and ".join(["<image>"] * len(sizes))
    return {"problem": f"{places}How many are {row} {split}?", "images": paths, "answer": str(row), "level": row % 3}


def _clip(folder: Path, split: str, row: int, noise: np.random.Generator) -> dict[str, object]:
    """A question with a video."""
    path = f"{split}-{row}.avi"
    write_video(folder / "rows" / path, noise.integers(0, 256, (8 + row, 56, 56, 3), np.uint8), fps=10)
    return {"problem": f"<video>How many are {row} {split}?", "videos": [path], "answer": str(row)}


def _write(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("\n".join(map(json.dumps, rows)))
