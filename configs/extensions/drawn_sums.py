"""A data source of your own: copy this file, edit it, and name it in a config, as drawn_sums.yaml beside it does.

`rows` is called with `kwargs` of the config and yields a row at a time: a mapping of columns, named as in a file of
rows. It may read files, a database or a data set, or draw what it yields, as here.
"""

from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageDraw


def rows(seed: int, count: int, *, held_out: bool = False, largest: int = 9, side: int = 56) -> Iterator[dict]:
    """Sums of two numbers, drawn on white paper; the answer is their sum.

    Args:
        seed: Decides which sums are drawn. Equal arguments must give equal rows: draw from a generator of your own.
        count: Number of rows.
        held_out: Draw the fifth of all sums that is never trained on, or else the other four fifths.
        largest: The largest number that is added.
        side: Side of the square image, pixels.
    """
    width = ImageDraw.Draw(Image.new("1", (1, 1))).textlength(f"{largest}+{largest}")
    if width + side // 4 > side:  # told before a run starts
        raise ValueError(f"a sum of two numbers up to {largest} does not fit on {side} pixels")
    draw = np.random.default_rng(seed)
    numbers = range(largest + 1)
    sums = [(first, second) for first in numbers for second in numbers if ((first + 2 * second) % 5 == 0) == held_out]
    for _ in range(count):
        first, second = sums[draw.integers(len(sums))]
        yield {
            "problem": "<image>What is the sum?",
            "images": _paper(f"{first}+{second}", side, left=draw.integers(side // 4)),
            "answer": first + second,
            "largest": max(first, second),  # every other column reaches the reward, in sample.extra
        }


# A source that reads data of its own may also say which they are, by `fingerprint(**kwargs) -> str`: a version, a
# commit, a hash. Where it says something else than before, the rows are prepared again. The code of this file, what it
# imports from beside it, and `kwargs` count in any case.


def _paper(text: str, side: int, *, left: int) -> Image.Image:
    image = Image.new("RGB", (side, side), "white")
    ImageDraw.Draw(image).text((left, side // 3), text, fill="black")
    return image
