"""What a forecast of memory is made of: rows that a person can add up, and the time at which each is there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

GIB: Final = 1 << 30

Phase = Literal["always", "generate", "update", "update critic", "reference", "save", "cold start"]
"""`always` is there in every other phase but the cold start; the others take turns."""

Turn = Literal["generate", "update", "save"]
"""The phases that a run measures (rl_core.workers.peak_memory). The trainer's passes are all in `update`."""

_PHASES_OF: Final[dict[Turn, tuple[Phase, ...]]] = {
    "generate": ("generate",),
    "update": ("update", "update critic", "reference"),
    "save": ("save",),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryRow:
    """One thing that takes memory: its name, its bytes, and the phase in which it is there."""

    name: str
    num_bytes: int
    phase: Phase

    @property
    def gib(self) -> float:
        """Its size in GiB."""
        return self.num_bytes / GIB


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryForecast:
    """The memory of one worker, and what its KV cache holds.

    Attributes:
        rows: What takes memory: of the GPU, or on a CPU of the machine.
        host_rows: What takes the machine's memory beside a GPU; empty on a CPU.
        kept: Share of the update's bytes that the allocator keeps for the other phases (malloc, on a CPU).
        cached_sequences: How many sequences of the greatest length the KV cache holds at one time; 0 where there is no
            room for any.
        workers_a_machine: Workers that share the memory of a machine.
        generating_a_machine: How many of them only generate, while the others only train; 0 if all do both. Then the
            rows of the phase `generate` are all that those have, and the others have all other rows.
    """

    rows: Sequence[MemoryRow]
    host_rows: Sequence[MemoryRow] = ()
    kept: float = 0.0
    cached_sequences: int
    workers_a_machine: int = 1
    generating_a_machine: int = 0

    @property
    def peak_gib(self) -> float:
        """Most memory at one time. A cold start ends before RL, and in RL the phases take turns."""
        return max(self.turn_gib(turn) for turn in _PHASES_OF) if self.rl_is_largest else self._cold_start_gib

    @property
    def rl_is_largest(self) -> bool:
        """Whether reinforcement learning takes more than the cold start, if there is one."""
        return max(map(self.turn_gib, _PHASES_OF)) >= self._cold_start_gib

    @property
    def is_split(self) -> bool:
        """Whether some workers only generate and the others only train."""
        return self.generating_a_machine > 0

    @property
    def machine_gib(self) -> float:
        """Most of a machine's memory that its workers take together. Beside GPUs, one that only generates is counted
        like one that trains."""
        if self.host_rows or not self.is_split:
            return self.workers_a_machine * (self.host_gib if self.host_rows else self.peak_gib)
        training = max(self.turn_gib("update"), self.turn_gib("save"), self._cold_start_gib)
        training_workers = self.workers_a_machine - self.generating_a_machine
        return training_workers * training + self.generating_a_machine * self.turn_gib("generate")

    @property
    def host_gib(self) -> float:
        """Most of the machine's memory that a worker takes beside its GPU."""
        always = _total(self.host_rows, "always")
        return always + max(_total(self.host_rows, "save"), _total(self.host_rows, "generate"))

    def turn_gib(self, turn: Turn) -> float:
        """Most memory in one phase of a step, of a worker that takes part in it."""
        if turn == "generate" and self.is_split:
            return _total(self.rows, "generate")
        largest = max(_total(self.rows, phase) for phase in _PHASES_OF[turn])
        update = max(_total(self.rows, phase) for phase in _PHASES_OF["update"])
        return _total(self.rows, "always") + max(largest, self.kept * update)

    def rows_of(self, turn: Turn | Literal["always"]) -> list[MemoryRow]:
        """The rows that are there in one phase of a step alone, or in all of them."""
        phases = ("always",) if turn == "always" else _PHASES_OF[turn]
        return [row for row in self.rows if row.phase in phases]

    @property
    def _cold_start_gib(self) -> float:
        return _total(self.rows, "cold start")


def _total(rows: Sequence[MemoryRow], phase: Phase) -> float:
    return sum(row.gib for row in rows if row.phase == phase)
