"""Slots of one machine for runs that are carried out at the same time: what each of them takes, and what is there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rl_core.config.run import RunConfig
from rl_core.environment import threads_of_a_worker, usable_cores, usable_memory
from rl_core.planning.gpu import Gpu, find_gpu, visible_gpus
from rl_core.planning.memory import memory_forecast
from rl_core.planning.memory_rows import GIB
from rl_core.planning.model_sizes import model_sizes
from rl_core.planning.settings import resolve_auto


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """What runs at the same time share: the GPUs, as CUDA_VISIBLE_DEVICES names them, cores and memory of this
    process."""

    gpus: tuple[str, ...]
    cores: int
    memory_gib: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """What a run takes of a machine: GPUs, or a core for each thread that computes on a CPU; and the machine's memory
    by the forecast, None where it is not known. A run that joins a Ray cluster does not decide itself on which devices
    its workers run."""

    gpus: int = 0
    cores: int = 0
    memory_gib: float | None
    joins_cluster: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """The part of a machine that a run has: what it needs, with GPUs for itself, or all of the machine."""

    need: Need
    gpus: tuple[str, ...] = ()
    has_all: bool = False

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables with which a process uses this slot alone."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if self.gpus else {}


class Slots:
    """Gives the slots of a machine. A run that cannot share the machine gets all of it when nobody else has a part."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._taken: list[Slot] = []

    def take(self, need: Need) -> Slot | None:
        """A slot with so much of the machine; None while others have too much of it. GPUs are given in their order."""
        slot = self._slot_for(need)
        if slot is not None:
            self._taken.append(slot)
        return slot

    def give_back(self, slot: Slot) -> None:
        """Make a slot free, one that was taken."""
        self._taken.remove(slot)

    def _slot_for(self, need: Need) -> Slot | None:
        if why_alone(need, self._machine) is not None:
            return None if self._taken else Slot(need=need, has_all=True)
        if any(slot.has_all for slot in self._taken):
            return None
        used = {gpu for slot in self._taken for gpu in slot.gpus}
        free = [gpu for gpu in self._machine.gpus if gpu not in used]
        together = [need, *(slot.need for slot in self._taken)]
        has_room = (
            need.gpus <= len(free)
            and sum(one.cores for one in together) <= self._machine.cores
            and sum(one.memory_gib or 0.0 for one in together) <= self._machine.memory_gib
        )
        return Slot(need=need, gpus=tuple(free[: need.gpus])) if has_room else None


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
    """How many of these runs have a slot before one of them has ended. None starts before the one in front of it."""
    slots = Slots(machine)
    return next((number for number, need in enumerate(needs) if slots.take(need) is None), len(needs))


def is_ever_shared(needs: Sequence[Need], machine: Machine) -> bool:
    """Whether two of these runs can be there at the same time. A run starts after the one in front of it, so if no two
    neighbours fit, none do."""
    return any(num_begun(neighbours, machine) == len(neighbours) for neighbours in pairwise(needs))


_ONE_BY_ONE: Final = "one after the other"


def this_machine() -> Machine:
    """What this process may use."""
    return Machine(gpus=visible_gpus(), cores=usable_cores(), memory_gib=usable_memory() / GIB)


def needs_of(configs: Sequence[RunConfig]) -> list[Need]:
    """What each run of a set takes of this machine."""
    gpus = {device: find_gpu(device) for device in {config.cluster.device for config in configs}}
    return [need_of(config, gpus[config.cluster.device]) for config in configs]


def need_of(config: RunConfig, gpu: Gpu | None) -> Need:
    """What a run takes of a machine with this GPU or without one: a GPU, or cores for the threads, of each worker."""
    cluster = config.cluster
    threads = cluster.devices * threads_of_a_worker(cluster.devices, fixed=cluster.threads)
    return Need(
        gpus=cluster.devices if gpu else 0,
        cores=0 if gpu else threads,
        memory_gib=_memory_gib(config, gpu),
        joins_cluster=cluster.address != "local" or cluster.nodes > 1,
    )


def _memory_gib(config: RunConfig, gpu: Gpu | None) -> float | None:
    """The machine's memory that a run takes; None where its model is not here."""
    try:
        sizes = model_sizes(config.model.source)
    except (ValueError, OSError):
        return None  # the run itself says so
    if sizes is None:
        return None
    resolved = resolve_auto(config, sizes, gpu).config
    return memory_forecast(resolved, sizes, gpu_gib=(gpu.memory_gib or 0.0) if gpu else None).machine_gib


def at_once_words(needs: Sequence[Need], machine: Machine) -> str:
    """How many of these runs, two or more, are carried out at the same time, and why."""
    if len(set(needs)) > 1:
        return "side by side as they fit" if is_ever_shared(needs, machine) else f"{_ONE_BY_ONE}: no two fit together"
    most, need = num_begun(needs, machine), needs[0]
    number = f"{most} at a time" if most > 1 else _ONE_BY_ONE
    if (why := why_alone(need, machine)) is not None:
        return f"{number}: {why}"
    devices = (
        f"{need.gpus} of {len(machine.gpus)} GPU(s)"
        if need.gpus
        else f"{need.cores} of {machine.cores} core(s) (cluster.threads)"
    )
    return f"{number}: a run takes {devices} and about {need.memory_gib:.1f} of {machine.memory_gib:.1f} GiB of memory"
