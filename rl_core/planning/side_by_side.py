"""How many runs of a set this machine carries out at the same time, and why: what each of them takes, and what is
there."""

from collections.abc import Sequence
from typing import Final

from rl_core.config.run import RunConfig
from rl_core.environment import threads_of_a_worker, usable_cores, usable_memory
from rl_core.planning.gpu import Gpu, find_gpu, visible_gpus
from rl_core.planning.memory import memory_forecast
from rl_core.planning.memory_rows import GIB
from rl_core.planning.model_sizes import model_sizes
from rl_core.planning.places import Machine, Need, is_ever_shared, num_begun, why_alone
from rl_core.planning.settings import settle

_ONE_BY_ONE: Final = "one after the other"


def this_machine() -> Machine:
    """What this process may use."""
    return Machine(gpus=visible_gpus(), cores=usable_cores(), memory_gib=usable_memory() / GIB)


def needs_of(configs: Sequence[RunConfig]) -> list[Need]:
    """What each run of a set takes of this machine."""
    gpus = {device: find_gpu(device) for device in {config.cluster.device for config in configs}}
    return [need_of(config, gpus[config.cluster.device]) for config in configs]


def need_of(config: RunConfig, gpu: Gpu | None) -> Need:
    """What a run takes of a machine with this GPU, or without one: a GPU for each worker, or a core for each thread of
    each worker."""
    cluster = config.cluster
    threads = cluster.devices * threads_of_a_worker(cluster.devices, fixed=cluster.threads)
    return Need(
        gpus=cluster.devices if gpu else 0,
        cores=0 if gpu else threads,
        memory_gib=_memory_gib(config, gpu),
        joins_cluster=cluster.address != "local" or cluster.nodes > 1,
    )


def _memory_gib(config: RunConfig, gpu: Gpu | None) -> float | None:
    """The machine's memory that a run takes; None where its model is not here or is no model, and where patterns of
    adapters take for ever to match."""
    try:
        sizes = model_sizes(config.model.source)
    except (ValueError, OSError):
        return None  # the run itself says so
    if sizes is None:
        return None
    settled = settle(config, sizes, gpu).config
    return memory_forecast(settled, sizes, gpu_gib=(gpu.memory_gib or 0.0) if gpu else None).machine_gib


def at_once_words(needs: Sequence[Need], machine: Machine) -> str:
    """How many of these runs, two or more, are carried out at the same time, and why."""
    if len(set(needs)) > 1:
        return "side by side as they fit" if is_ever_shared(needs, machine) else f"{_ONE_BY_ONE}: no two fit together"
    most = num_begun(needs, machine)
    if most == 1:
        return f"{_ONE_BY_ONE}: {_why_one(needs[0], machine)}"
    return f"{most} at a time: {_shared(needs[0], machine, most=most)}"


def _why_one(need: Need, machine: Machine) -> str:
    """What of the machine a run takes that leaves too little for a second one."""
    if (why := why_alone(need, machine)) is not None:
        return why
    if 2 * need.gpus > len(machine.gpus) and need.gpus:
        return f"a run takes {_part(need.gpus, len(machine.gpus), 'GPU')}"
    if 2 * need.cores > machine.cores:
        return f"a run takes {_part(need.cores, machine.cores, 'core')} (cluster.threads)"
    return f"a run takes about {need.memory_gib:.1f} of {machine.memory_gib:.1f} GiB of memory"


def _part(taken: int, there: int, what: str) -> str:
    if taken < there:
        return f"{taken} of {there} {what}s"
    return f"the only {what}" if there == 1 else f"all {there} {what}s"


def _shared(need: Need, machine: Machine, *, most: int) -> str:
    """What equal runs share, and what each takes of it; memory where it lets no more of them run."""
    on_gpus = need.gpus > 0
    each = need.gpus if on_gpus else need.cores
    there = len(machine.gpus) if on_gpus else machine.cores
    shared = f"{there} GPUs, {each} each" if on_gpus else f"{there} cores, {each} thread{'s' if each > 1 else ''} each"
    if need.memory_gib is None or each * (most + 1) > there or need.memory_gib * (most + 1) <= machine.memory_gib:
        return shared
    return f"{machine.memory_gib:.1f} GiB of memory, about {need.memory_gib:.1f} each"
