from rl_core.planning.memory_rows import KEPT_BYTES
from tests.processes import printed_by

MIB = 1 << 20

# Three times: fills and frees so many blocks of a MiB, between which small arrays keep malloc from giving the blocks
# back by itself; then prints how many MiB of resident memory they still take, and how many after `give_back`.
FREES_BLOCKS = """
import sys
import numpy as np
from rl_core.device import computing_device
from rl_core.training.freed_memory import FreedMemory, _resident_bytes

computing_device()  # loads torch, which takes memory too
np.ones(1 << 22, np.uint8)  # freed at once: from now on glibc keeps blocks of less than this size
freed = FreedMemory()
for _ in range(3):
    before = _resident_bytes()
    pairs = [(np.ones(1 << 20, np.uint8), np.ones(1 << 12, np.uint8)) for _ in range(int(sys.argv[1]))]
    small = [between for _, between in pairs]
    del pairs
    print((_resident_bytes() - before) >> 20)
    freed.give_back()
    print((_resident_bytes() - before) >> 20)
    del small
"""


def before_and_after(mib: int) -> list[tuple[int, int]]:
    """The two numbers of each time."""
    numbers = [int(line) for line in printed_by(FREES_BLOCKS, mib).split()]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_much_freed_memory_goes_back_to_the_system_each_time():
    most = KEPT_BYTES // MIB
    assert all(before > most > 10 * after for before, after in before_and_after(most + 200))


def test_a_small_models_memory_is_kept_for_the_next_step():
    first, second, _ = before_and_after(KEPT_BYTES // MIB // 2)
    assert min(first) > 200, "kept"
    assert max(second) < 20, "and taken again"
