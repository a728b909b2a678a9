"""Rows that teach a tiny model to zoom into the left half of a picture, and to answer then; and a `zoom` of its own."""

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CALL = {"name": "zoom", "arguments": {"x1": 0, "y1": 0, "x2": 14, "y2": 28}}
QUESTION = "<image>How many?"


def rows(seed: int, size: int, with_lessons: bool = False, with_table: bool = False) -> Iterator[dict[str, Any]]:
    """Pictures of noise with the answer 1 or 2; every second lesson has the crop already. Lessons `with_table` have at
    the end of the question what `Table` shows there."""
    reply = f"<tool_call>{json.dumps(CALL)}</tool_call>"
    for index in range(size):
        noise = np.random.default_rng([seed, index]).integers(0, 256, (112, 112, 3), dtype=np.uint8)
        picture, answer = Image.fromarray(noise), str(1 + index % 2)
        asked, first = (
            (f"{QUESTION}\nLeft:<image>", [picture, left_half(picture)]) if with_table else (QUESTION, [picture])
        )
        if not with_lessons:
            yield {"problem": QUESTION, "images": [picture], "answer": answer}
        elif index % 2:
            yield {"problem": asked, "images": first, "answer": reply}
        else:
            turns = [("user", asked), ("assistant", reply), ("user", "<image>")]
            talk = [{"role": role, "content": content} for role, content in turns]
            crop = picture.crop((0, 0, 56, 112))
            yield {"problem": talk, "images": [*first, crop], "answer": f"<answer>{answer}</answer>"}


def zoom(sample: Any, x1: int, y1: int, x2: int, y2: int) -> Image.Image:
    """Look at a part of the picture.

    Args:
        x1: Left edge in pixels.
        y1: Upper edge in pixels.
        x2: Right edge in pixels.
        y2: Lower edge in pixels.
    """
    time.sleep(random.SystemRandom().uniform(0, float(os.environ.get("SECONDS_OF_ZOOM", "0"))))
    if (calls := os.environ.get("CALLS_OF_ZOOM")) is not None:
        with Path(calls).open("a") as out:
            out.write(f"{sample.prompt_uid}/{sample.sample_index}\n")
    return sample.images()[0].crop((x1, y1, x2, y2)).resize((56, 112))


def left_half(picture: Image.Image) -> Image.Image:
    """As many pixels as the prompt shows of the whole picture."""
    return picture.crop((0, 0, picture.width // 2, picture.height)).resize((28, 28))


class Table:
    """Shows the left half of the picture before the model says anything."""

    def reset(self, sample: Any, seed: int) -> list[Any]:
        return ["Left:", left_half(sample.images()[0])]

    def legs(self) -> int:
        """Count its legs."""
        return 4


def looked(sample: Any) -> float:
    """A reward that teaches something in six steps: for a look at the picture, and for few tokens after it."""
    looks = [turn for turn in sample.turns if any(call["name"] == "zoom" for call in turn.get("calls", ()))]
    shown = sum(len(turn["image_uids"]) for turn in looks)
    return min(shown, 1) - sample.response_length / 1000
