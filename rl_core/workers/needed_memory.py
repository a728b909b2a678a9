"""The memory for which the machines of a cluster are asked. Apart from the check, which loads Ray."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class NeededMemory:
    """What a run takes by the forecast.

    Attributes:
        machine_gib: Memory of a machine that its workers take; None if it is not known.
        gpu_gib: Memory of a GPU that a worker takes; None if it is not known, or if there is no GPU.
    """

    machine_gib: float | None = None
    gpu_gib: float | None = None
