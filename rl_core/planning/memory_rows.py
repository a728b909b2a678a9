"""What a forecast of memory is made of: rows that a person can add up, and the moments at which each is there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

GIB: Final = 1 << 30

KEPT_BYTES: Final = 1 << 29
"""Freed memory that a worker on a CPU keeps at most (rl_core.training.freed_memory): the pages of a small model's
update, whose return would cost some percent of a step."""

Moment = Literal[
    "weight sync",
    "sampling",
    "pass of the reference",
    "backward pass of the output head",
    "backward pass of a layer",
    "backward pass of the vision tower",
    "end of the backward pass",
    "optimizer step",
    "update of the critic",
    "save",
    "cold start",
]
"""A moment of a run at which its memory may be the largest. They follow each other, so a run takes the most of any of
them, and not their sum."""

Phase = Literal["generate", "update", "save"]
"""The phases that a run measures (rl_core.workers.usage). The trainer's passes are all in `update`."""

_MOMENTS_OF: Final[dict[Phase, tuple[Moment, ...]]] = {
    "generate": ("weight sync", "sampling"),
    "update": (
        "pass of the reference",
        "backward pass of the output head",
        "backward pass of a layer",
        "backward pass of the vision tower",
        "end of the backward pass",
        "optimizer step",
        "update of the critic",
    ),
    "save": ("save",),
}

ALWAYS: Final[tuple[Moment, ...]] = tuple(moment for moment in get_args(Moment) if moment != "cold start")
"""Every moment of reinforcement learning; a cold start ends before it."""

GENERATE: Final = _MOMENTS_OF["generate"]
UPDATE: Final = _MOMENTS_OF["update"]

BACKWARD: Final[tuple[Moment, ...]] = (
    "backward pass of the output head",
    "backward pass of a layer",
    "backward pass of the vision tower",
    "end of the backward pass",
)
"""The moments of the policy's backward pass, in their order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryRow:
    """One thing that takes memory: its name, its bytes, and the moments at which it is there."""

    name: str
    num_bytes: int
    moments: tuple[Moment, ...] = ALWAYS

    @property
    def gib(self) -> float:
        """Its size in GiB."""
        return self.num_bytes / GIB


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryForecast:
    """The memory of one worker, and what its KV cache holds.

    Attributes:
        rows: What takes memory: of the GPU, or on a CPU of the machine.
        host_rows: What takes the memory of a machine with GPUs; empty on a CPU.
        kept: Share of the update's bytes that the allocator keeps for the other phases, up to KEPT_BYTES (malloc, on a
            CPU).
        cached_sequences: Longest sequences that the KV cache holds at one time.
        generating_per_machine: How many of `workers_per_machine` only generate, while the others only train; 0 if all
            do both. The rows of the phase `generate` are all that those have, and the others have all other rows.
    """

    rows: Sequence[MemoryRow]
    host_rows: Sequence[MemoryRow] = ()
    kept: float = 0.0
    cached_sequences: int
    workers_per_machine: int = 1
    generating_per_machine: int = 0

    @property
    def peak_gib(self) -> float:
        """Most memory at one time. A cold start ends before RL, and in RL the phases take turns."""
        return max(self.phase_gib(phase) for phase in _MOMENTS_OF) if self.rl_is_largest else self._cold_start_gib

    @property
    def rl_is_largest(self) -> bool:
        """Whether reinforcement learning takes more than the cold start, if there is one."""
        return max(map(self.phase_gib, _MOMENTS_OF)) >= self._cold_start_gib

    @property
    def is_split(self) -> bool:
        """Whether some workers only generate and the others only train."""
        return self.generating_per_machine > 0

    @property
    def machine_gib(self) -> float:
        """Most of a machine's memory that its workers take together. Beside GPUs, one that only generates is counted
        like one that trains."""
        if self.host_rows or not self.is_split:
            return self.workers_per_machine * (self.host_gib if self.host_rows else self.peak_gib)
        training = max(self.phase_gib("update"), self.phase_gib("save"), self._cold_start_gib)
        training_workers = self.workers_per_machine - self.generating_per_machine
        return training_workers * training + self.generating_per_machine * self.phase_gib("generate")

    @property
    def host_gib(self) -> float:
        """Most of the machine's memory that a worker takes in addition to its GPU's."""
        return max(total_gib(self.host_rows, moment) for moment in ("save", "sampling"))

    def phase_gib(self, phase: Phase) -> float:
        """Most memory in one phase of a step, of a worker that takes part in it."""
        largest = self.moment_gib(self.largest_moment(phase))
        if not self.kept or (phase == "generate" and self.is_split):
            return largest
        always = sum(row.gib for row in self.rows if row.moments == ALWAYS)
        update = total_gib(self.rows, self.largest_moment("update"))
        return max(largest, always + min(self.kept * (update - always), KEPT_BYTES / GIB))

    def moment_gib(self, moment: Moment) -> float:
        """What is there at a moment, in a worker that takes part in it."""
        apart = self.is_split and moment in GENERATE
        return total_gib([row for row in self.rows if row.moments != ALWAYS] if apart else self.rows, moment)

    def largest_moment(self, phase: Phase) -> Moment:
        """The moment of a phase at which the most memory is taken."""
        return largest_moment(self.rows, _MOMENTS_OF[phase])

    def rows_of(self, phase: Phase | Literal["always"]) -> list[MemoryRow]:
        """The rows that are there at the largest moment of a phase but not always; or those that are there always."""
        if phase == "always":
            return [row for row in self.rows if row.moments == ALWAYS]
        moment = self.largest_moment(phase)
        return [row for row in self.rows if moment in row.moments and row.moments != ALWAYS]

    @property
    def _cold_start_gib(self) -> float:
        return total_gib(self.rows, "cold start")


def largest_moment(rows: Sequence[MemoryRow], moments: Iterable[Moment]) -> Moment:
    """The moment at which the rows take the most; the first of several."""
    return max(moments, key=lambda moment: total_gib(rows, moment))


def total_gib(rows: Sequence[MemoryRow], moment: Moment) -> float:
    """What the rows take at a moment, in GiB."""
    return sum(row.gib for row in rows if moment in row.moments)
