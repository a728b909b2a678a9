from collections.abc import Iterator

import numpy as np
import pytest

from rl_core.planning.memory_rows import KEPT_BYTES
from rl_core.training.freed_memory import FreedMemory, _resident_bytes

BLOCK = 1 << 20
SMALL = 1 << 12


@pytest.fixture
def freed() -> Iterator[FreedMemory]:
    np.ones(4 * BLOCK, np.uint8)  # freed at once: from now on glibc keeps blocks of less than this size
    meter = FreedMemory()
    yield meter
    meter.give_back()


def free_between_small_arrays(num_bytes: int) -> list[np.ndarray]:
    """Fill and free so many bytes in blocks, and return the arrays between them, which keep malloc from giving the
    blocks back by itself."""
    pairs = [(np.ones(BLOCK, np.uint8), np.ones(SMALL, np.uint8)) for _ in range(num_bytes // BLOCK)]
    return [small for _, small in pairs]


def resident_before_and_after(meter: FreedMemory, num_bytes: int) -> tuple[int, int]:
    """Bytes of resident memory that so many freed bytes take, before and after `give_back`."""
    before = _resident_bytes()
    kept = free_between_small_arrays(num_bytes)
    freed = _resident_bytes() - before
    meter.give_back()
    del kept
    return freed, _resident_bytes() - before


def test_much_freed_memory_goes_back_to_the_system_each_time(freed: FreedMemory) -> None:
    for _ in range(3):
        before, after = resident_before_and_after(freed, KEPT_BYTES + 200 * BLOCK)
        assert before > KEPT_BYTES > 10 * after


def test_a_small_models_memory_is_kept_for_the_next_step(freed: FreedMemory) -> None:
    before, after = resident_before_and_after(freed, KEPT_BYTES // 2)
    assert after >= 0.9 * before > 0
