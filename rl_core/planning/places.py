"""Places on one machine for runs that are carried out at the same time: its GPUs, or without GPUs its cores, and its
memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What runs at the same time share.

    Attributes:
        gpus: The GPUs that this process may use, each as CUDA_VISIBLE_DEVICES names it.
        cores: The cores that it may use.
        memory_gib: The machine's memory in GiB.
    """

    gpus: tuple[str, ...]
    cores: int
    memory_gib: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """What a run takes of a machine.

    Attributes:
        gpus: GPUs; 0 for a run that computes on a CPU.
        cores: Cores, one for each thread that computes on a CPU; 0 for a run on GPUs.
        memory_gib: The machine's memory in GiB, by the forecast; None where it is not known.
        joins_cluster: Whether it joins a Ray cluster, which decides itself on which devices its workers run.
    """

    gpus: int = 0
    cores: int = 0
    memory_gib: float | None
    joins_cluster: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The part of a machine that a run has while it is carried out.

    Attributes:
        need: What the run takes.
        gpus: The GPUs that it has for itself.
        has_all: Whether it has the whole machine. Then nothing of it is withheld.
    """

    need: Need
    gpus: tuple[str, ...] = ()
    has_all: bool = False

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables with which a process uses this place alone."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if self.gpus else {}


class Places:
    """Gives the places of a machine. A run that cannot share the machine gets all of it when nobody else has a part."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._taken: list[Place] = []

    def take(self, need: Need) -> Place | None:
        """A place with so much of the machine; None while others have too much of it. GPUs are given in their order."""
        place = self._place_for(need)
        if place is not None:
            self._taken.append(place)
        return place

    def give_back(self, place: Place) -> None:
        """Make a place free, one that was taken."""
        self._taken.remove(place)

    def _place_for(self, need: Need) -> Place | None:
        if why_alone(need, self._machine) is not None:
            return None if self._taken else Place(need=need, has_all=True)
        if any(place.has_all for place in self._taken):
            return None
        used = {gpu for place in self._taken for gpu in place.gpus}
        free = [gpu for gpu in self._machine.gpus if gpu not in used]
        together = [need, *(place.need for place in self._taken)]
        has_room = (
            need.gpus <= len(free)
            and sum(one.cores for one in together) <= self._machine.cores
            and sum(one.memory_gib or 0.0 for one in together) <= self._machine.memory_gib
        )
        return Place(need=need, gpus=tuple(free[: need.gpus])) if has_room else None


def why_alone(need: Need, machine: Machine) -> str | None:
    """Why a run cannot share a machine with others, whatever they take; None if it can."""
    if need.joins_cluster:
        return "a run joins a Ray cluster, which gives it its devices"
    if need.memory_gib is None:
        return "how much memory a run takes is not known yet"
    if need.gpus > len(machine.gpus):
        return f"a run asks for {need.gpus} GPU(s), and this process may use {len(machine.gpus)}"
    if need.cores > machine.cores:
        return f"a run computes with {need.cores} threads, and there are {machine.cores} core(s) (cluster.threads)"
    if need.memory_gib > machine.memory_gib:
        return f"a run takes about {need.memory_gib:.1f} GiB of memory, and {machine.memory_gib:.1f} GiB are there"
    return None


def num_begun(needs: Sequence[Need], machine: Machine) -> int:
    """How many of these runs have a place before one of them has ended. None starts before the one in front of it."""
    places = Places(machine)
    return next((number for number, need in enumerate(needs) if places.take(need) is None), len(needs))


def is_ever_shared(needs: Sequence[Need], machine: Machine) -> bool:
    """Whether two of these runs can be there at the same time. A run starts after the one in front of it, so if no two
    neighbours fit, none do."""
    return any(num_begun(neighbours, machine) == len(neighbours) for neighbours in pairwise(needs))
