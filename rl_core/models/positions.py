"""Rotary position ids of one prompt, before it is packed."""

from collections.abc import Sequence

import numpy as np

from rl_core.models.tree_layout import Int64Array
from rl_core.types import Int32Array

Grid = tuple[int, int, int]


def mrope_positions(
    token_ids: Int32Array, grids: Sequence[Grid], *, image_token_id: int, merge_size: int
) -> Int64Array:
    """[3, P] time, height and width positions (Qwen2-VL, arXiv:2409.12191, section 2.1, for still images).

    Text tokens count on in all three rows. The tokens of an image share the time of the place where it begins and
    carry their row and column; the text after it continues at the largest of these plus one.

    Args:
        token_ids: [P] the prompt, images expanded to their placeholder tokens.
        grids: (t, h, w) of each image in patches, in order.
        image_token_id: The placeholder.
        merge_size: Patches a side that make one token.

    Raises:
        ValueError: Placeholder tokens and images do not match.
    """
    is_image = token_ids == image_token_id
    expected = sum(t * h * w for t, h, w in grids) // merge_size**2
    if int(is_image.sum()) != expected:
        raise ValueError(f"{int(is_image.sum())} image tokens, but its {len(grids)} images make {expected}")
    pieces: list[Int64Array] = []
    done, start = 0, 0
    for grid in grids:
        begin = done + int(np.argmax(is_image[done:]))
        pieces.append(_text_positions(start, begin - done))
        start += begin - done
        image = _image_positions(start, grid, merge_size)
        pieces.append(image)
        start += max(grid[1], grid[2]) // merge_size
        done = begin + image.shape[1]
    pieces.append(_text_positions(start, len(token_ids) - done))
    return np.concatenate(pieces, axis=1)


def _text_positions(start: int, length: int) -> Int64Array:
    return np.tile(np.arange(start, start + length, dtype=np.int64), (3, 1))


def _image_positions(start: int, grid: Grid, merge_size: int) -> Int64Array:
    shape = (grid[0], grid[1] // merge_size, grid[2] // merge_size)
    return start + np.indices(shape, dtype=np.int64).reshape(3, -1)
