"""Pictures whose objects lie in the middle of one quarter, as a data source of a config (docs/data.md). Reduced to four
pixels, as the prompt shows it, a picture says which quarter that is and nothing else: `zoom` shows how many there are.
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

from rl_core.sources.counting import CountingSource
from rl_core.sources.scenes import render_scene

SIDE = 84
"""Of the middle of a quarter, in pixels; a quarter has twice as long sides."""
SEEN = 28
"""Of a quarter in the overview as the model's processor enlarges it: the unit of its coordinates."""
QUESTION = "<image>How many objects are there? Reply with the number inside <answer></answer>."


def rows(seed: int, size: int) -> Iterator[dict[str, Any]]:
    """Yield questions; equal arguments give equal rows."""
    for index in range(size):
        picture, _, count = drawn(seed, index)
        yield {"problem": QUESTION, "images": [picture], "answer": str(count)}


def lessons(seed: int, size: int, *, with_tool: bool = True) -> Iterator[dict[str, Any]]:
    """Yield rows of the cold start: an answer after a call, and three calls, of which the first looks at the right
    quarter and the others at one that is drawn, so that every second call is right. Without the tool: the answer at
    once, of which nothing but its form can be learned."""
    for index in range(size):
        picture, right, count = drawn(seed, index)
        random = int(np.random.default_rng([seed, index, 1]).integers(4))
        answer = f"<answer>{count}</answer>"
        if not with_tool:
            yield {"problem": QUESTION, "images": [picture], "answer": answer}
        elif index % 4:
            yield {"problem": QUESTION, "images": [picture], "answer": call(right if index % 4 == 1 else random)}
        else:
            looked = right if index % 16 else random
            turns = [("user", QUESTION), ("assistant", call(looked)), ("tool", "<image>")]
            talk = [{"role": role, "content": content} for role, content in turns]
            yield {"problem": talk, "images": [picture, picture.crop(middle(looked, 2 * SIDE))], "answer": answer}


def call(quarter: int) -> str:
    """What the model says to look at the middle of a quarter."""
    arguments = dict(zip(("x1", "y1", "x2", "y2"), middle(quarter, SEEN), strict=True))
    return f"<tool_call>{json.dumps({'name': 'zoom', 'arguments': arguments})}</tool_call>"


def middle(quarter: int, side: int) -> tuple[int, int, int, int]:
    """Left, upper, right and lower edge of the middle of a quarter whose side is so long; quarters are numbered row by
    row."""
    row, column = divmod(quarter, 2)
    left, top = column * side + side // 4, row * side + side // 4
    return left, top, left + side // 2, top + side // 2


def drawn(seed: int, index: int) -> tuple[Image.Image, int, int]:
    """A picture, the quarter with the objects, and their number."""
    draw = np.random.default_rng([seed, index])
    quarter = int(draw.integers(4))
    overview = draw.integers(30, 50, (4, 3))  # dark where nothing is
    overview[quarter] = draw.integers(155, 170, 3)
    source = CountingSource(type="counting", size=index + 1, scene_seed=seed, object_size=(0.13, 0.13), lighting=(1, 1))
    scene = source.scene(index)
    return lit(render_scene(scene, image_size=SIDE), quarter, overview), quarter, len(scene.objects)


def lit(scene: np.ndarray, quarter: int, overview: np.ndarray) -> Image.Image:
    """The picture with a scene in the middle of a quarter, [SIDE, SIDE, 3], and light around it such that it is reduced
    to exactly this overview, [4, 3]: otherwise many objects would make their quarter darker."""
    left, top, right, bottom = middle(quarter, 2 * SIDE)
    light = overview.astype(np.float64)
    for _ in range(60):
        canvas = light.reshape(2, 2, 3).clip(0, 255).round().astype(np.uint8)
        canvas = canvas.repeat(2 * SIDE, axis=0).repeat(2 * SIDE, axis=1)
        canvas[top:bottom, left:right] = scene
        picture = Image.fromarray(canvas)
        missing = overview - np.asarray(picture.resize((2, 2)), np.float64).reshape(4, 3)
        if not missing.any():
            return picture
        light += missing
    raise ValueError("no light gives this overview")
