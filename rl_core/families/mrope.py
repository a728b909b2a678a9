"""Positions in time, height and width of a prompt with images and videos."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rl_core.types import Int32Array, Int64Array

Grid = tuple[int, int, int]


class VisionRun(NamedTuple):
    """Consecutive placeholder tokens: an image, a video, or one step of a video that has text between its steps."""

    grid: Grid  # (t, h, w) in patches
    interval: float = 1.0  # Difference of the positions of two consecutive time steps


def mrope_positions(token_ids: Int32Array, runs: Mapping[int, Sequence[VisionRun]], *, merge_size: int) -> Int64Array:
    """[3, P] time, height and width positions (Qwen2-VL, arXiv:2409.12191, section 2.1).

    A text token has the next position in all three rows. The tokens of an image or video have the positions of their
    time step (in multiples of the interval), row and column, counted from where it begins. The text after it continues
    at the largest of them plus one. `runs` has the runs of each placeholder token, of which `merge_size` squared
    patches make one. Raises ValueError if tokens and runs do not match."""
    for token, expected in runs.items():
        _check_count(token_ids, token, expected, merge_size)
    waiting = {token: deque(expected) for token, expected in runs.items()}
    is_vision = np.isin(token_ids, list(runs))
    pieces: list[Int64Array] = []
    done, start = 0, 0
    while is_vision[done:].any():
        begin = done + int(np.argmax(is_vision[done:]))
        pieces.append(_text_positions(start, begin - done))
        start += begin - done
        vision = _vision_positions(start, waiting[int(token_ids[begin])].popleft(), merge_size)
        pieces.append(vision)
        start = int(vision.max()) + 1
        done = begin + vision.shape[1]
    pieces.append(_text_positions(start, len(token_ids) - done))
    return np.concatenate(pieces, axis=1)


def _check_count(token_ids: Int32Array, token: int, runs: Sequence[VisionRun], merge_size: int) -> None:
    found = int((token_ids == token).sum())
    expected = sum(int(np.prod(run.grid)) for run in runs) // merge_size**2
    if found != expected:
        raise ValueError(f"{found} placeholders (token {token}), but its images or videos make {expected}")


def _text_positions(start: int, length: int) -> Int64Array:
    return np.tile(np.arange(start, start + length, dtype=np.int64), (3, 1))


def _vision_positions(start: int, run: VisionRun, merge_size: int) -> Int64Array:
    steps, height, width = run.grid
    positions = np.indices((steps, height // merge_size, width // merge_size), dtype=np.int64)
    positions[0] = (positions[0] * run.interval).astype(np.int64)
    return start + positions.reshape(3, -1)
