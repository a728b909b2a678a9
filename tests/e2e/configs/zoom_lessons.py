"""Rows that teach a tiny model to zoom into the left half of a picture, and to answer then."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

CALL = {"name": "zoom", "arguments": {"x1": 0, "y1": 0, "x2": 14, "y2": 28}}
QUESTION = "<image>How many?"


def rows(seed: int, size: int, with_lessons: bool = False) -> Iterator[dict[str, Any]]:
    """Pictures of noise with the answer 1 or 2; every second lesson has the crop already."""
    said = f"<tool_call>{json.dumps(CALL)}</tool_call>"
    for index in range(size):
        noise = np.random.default_rng([seed, index]).integers(0, 256, (112, 112, 3), dtype=np.uint8)
        picture, answer = Image.fromarray(noise), str(1 + index % 2)
        if not with_lessons:
            yield {"problem": QUESTION, "images": [picture], "answer": answer}
        elif index % 2:
            yield {"problem": QUESTION, "images": [picture], "answer": said}
        else:
            turns = [("user", QUESTION), ("assistant", said), ("user", "<image>")]
            talk = [{"role": role, "content": content} for role, content in turns]
            crop = picture.crop((0, 0, 56, 112))
            yield {"problem": talk, "images": [picture, crop], "answer": f"<answer>{answer}</answer>"}


def looked(sample: Any) -> float:
    """A reward that teaches something in six steps: for a look at the picture, and for few tokens after it."""
    shown = sum(len(turn["image_uids"]) for turn in sample.turns if turn["role"] == "tool")
    return min(shown, 1) - sample.response_length / 1000
