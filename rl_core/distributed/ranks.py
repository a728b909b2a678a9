"""The ranks as one of them sees them: what it is, how the weights are spread, and how small values are exchanged."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from socket import SO_REUSEADDR, SOL_SOCKET, socket
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.distributed.constants import default_pg_timeout
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from rl_core.device import take_device
from rl_core.distributed.interface import choose_interface
from rl_core.distributed.place import ALONE, Layout, RankPlace
from rl_core.distributed.sendable import sendable

Value = TypeVar("Value")

TOPOLOGY_ALONE: Final = "one worker"

_LAST_MEETING: Final = timedelta(seconds=10)


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratorRanks:
    """The ranks that hold one generator together, as one of them sees them: `size` consecutive ones. Their process
    group is of CPU tensors; None for a rank with a generator of its own."""

    place: RankPlace
    size: int
    group: dist.ProcessGroup | None

    @property
    def is_first(self) -> bool:
        """Whether this rank is the one that gives the rollouts away; all of them have sampled the same."""
        return self.place.rank % self.size == 0

    def least(self, number: int) -> int:
        """The least number that a rank of the generator says; all of them ask equally often."""
        if self.group is None:
            return number
        agreed = torch.tensor([number])
        dist.all_reduce(agreed, op=dist.ReduceOp.MIN, group=self.group)
        return int(agreed)


@dataclass(kw_only=True, eq=False, slots=True)
class Ranks:
    """All ranks. Every method but `close` is called by all of them, in the same order. For a rank that is alone every
    method returns at once. A group that this rank is alone in is None.

    Attributes:
        shards: The ranks over which one replica of the weights is spread.
        replicas: Those that have the same part of the weights as this one.
        objects: All ranks, to exchange small values.
        checkpoint_group: All ranks, to write and read checkpoints, which a thread may do during the training.
        sequence: Those that compute the same sequences together with this one.
        generator_group: Those that hold a generator together with this one.
        layout: Where weights, gradients and moments lie.
    """

    place: RankPlace
    shards: DeviceMesh | None = None
    replicas: dist.ProcessGroup | None = None
    objects: dist.ProcessGroup | None = None
    checkpoint_group: dist.ProcessGroup | None = None
    sequence: dist.ProcessGroup | None = None
    generator_group: dist.ProcessGroup | None = None
    layout: Layout = "full"
    ranks_per_sequence: int = 1
    ranks_per_generator: int = 1

    @classmethod
    def join(
        cls, place: RankPlace, layout: Layout, *, ranks_per_sequence: int = 1, ranks_per_generator: int = 1
    ) -> Self:
        """Meet the other ranks; this waits until all have come, or raises RuntimeError. Torch's default process group
        must not exist yet. On a GPU the ranks of a machine take its visible devices in turn. Consecutive ranks compute
        a sequence together, or hold a generator."""
        if place.size == 1:
            return cls(place=place)
        replicas, shards = _replicas_and_shards(place, layout)
        choose_interface(place)
        device = take_device(place.local_rank).type
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
            store=meeting_store(place.meeting, number=place.rank, size=place.size),
            rank=place.rank,
            world_size=place.size,
        )
        several = {name: size for name, size in (("replicas", replicas), ("shards", shards)) if size > 1}
        mesh = init_device_mesh(device, tuple(several.values()), mesh_dim_names=tuple(several))
        return cls(
            place=place,
            shards=mesh["shards"] if "shards" in several else None,
            replicas=mesh.get_group("replicas") if "replicas" in several else None,
            objects=_gloo_group(),
            checkpoint_group=_gloo_group(),
            sequence=_group_of_neighbours(place, ranks_per_sequence),
            generator_group=_group_of_neighbours(place, ranks_per_generator, backend="gloo"),
            layout=layout,
            ranks_per_sequence=ranks_per_sequence,
            ranks_per_generator=ranks_per_generator,
        )

    @property
    def is_first(self) -> bool:
        """Whether this rank does what only one does, such as to write a file."""
        return self.place.rank == 0

    @property
    def learner(self) -> int:
        """The learner that this rank belongs to, from 0."""
        return self.place.rank // self.ranks_per_sequence

    @property
    def leads_learner(self) -> bool:
        """Whether this rank is the first of its learner, whose ranks all compute the same."""
        return self.place.rank % self.ranks_per_sequence == 0

    @property
    def learners(self) -> int:
        """Number of learners."""
        return self.place.size // self.ranks_per_sequence

    @property
    def generator(self) -> GeneratorRanks:
        """Those that hold a generator together with this one."""
        return GeneratorRanks(place=self.place, size=self.ranks_per_generator, group=self.generator_group)

    def gather_from_learners(self, value: Value) -> list[Value]:
        """As `gather`, but one value of each learner, whose ranks all have the same."""
        return self.gather(value)[:: self.ranks_per_sequence]

    @property
    def topology(self) -> str:
        """How many ranks there are and how the weights are spread: what the last digits depend on."""
        if self.objects is None:
            return TOPOLOGY_ALONE
        together = f", {self.ranks_per_sequence} for each sequence" if self.sequence is not None else ""
        generators = f", {self.ranks_per_generator} for each generator" if self.generator_group is not None else ""
        return (
            f"{self.place.size} workers, {self.place.ranks_per_node} on each machine, sharding "
            f"{self.layout}{together}{generators}"
        )

    def gather(self, value: Value) -> list[Value]:
        """The values of all ranks, in their order, on every rank. A value is anything that pickles."""
        if self.objects is None:
            return [value]
        found: list[Any] = [None] * self.place.size
        dist.all_gather_object(found, value, group=self.objects)
        return found

    @contextmanager
    def succeed_together(self) -> Iterator[None]:
        """If the block raises an error on some ranks, every rank raises one: its own, or else that of the first rank
        which has one. The block has no collective operation."""
        own: Exception | None = None
        try:
            yield
        except Exception as error:
            own = error
            raise
        finally:
            failures = [error for error in self.gather(None if own is None else sendable(own)) if error is not None]
        if failures:
            raise failures[0]

    def close(self) -> None:
        """Leave the ranks, unless vLLM has ended torch's process groups before. A rank that leaves closes its
        connections, which may still carry data of the last operation, so all come together once more."""
        if self.objects is None or not dist.is_initialized():
            return
        self.meet_for_the_last_time()
        self.objects = None
        dist.destroy_process_group()

    def meet_for_the_last_time(self) -> None:
        """Wait for all ranks, for at most some seconds."""
        if self.objects is not None and dist.is_initialized():
            with suppress(RuntimeError):  # another rank has died
                dist.monitored_barrier(self.objects, timeout=_LAST_MEETING)


LONE: Final = Ranks(place=ALONE)
WHOLE: Final = GeneratorRanks(place=ALONE, size=1, group=None)
"""A worker that trains without others, and has a whole generator."""


def meeting_store(meeting: str, *, number: int, size: int, timeout: timedelta = default_pg_timeout) -> TCPStore:
    """The store over which processes find each other, held by number 0, whose machine has the address `meeting`
    (`tcp://host:port`). It asks nobody who connects, and torch by itself would have it listen on every interface.
    Raises RuntimeError if the others do not come in time."""
    address = urlsplit(meeting)
    assert address.hostname is not None and address.port is not None, "an address as `free_meeting` gives it"
    if number > 0:
        return TCPStore(address.hostname, address.port, size, is_master=False, timeout=timeout)
    with socket() as listener:
        listener.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        listener.bind((address.hostname, address.port))
        listener.listen()
        return TCPStore(
            address.hostname, address.port, size, is_master=True, timeout=timeout, master_listen_fd=listener.detach()
        )


def _replicas_and_shards(place: RankPlace, layout: Layout) -> tuple[int, int]:
    """The number of replicas of the weights, and of ranks over which each is spread."""
    match layout:
        case "full":
            return 1, place.size
        case "none":
            return place.size, 1
        case "hybrid":
            return place.size // place.ranks_per_node, place.ranks_per_node


def _gloo_group() -> dist.ProcessGroup:
    group = dist.new_group(backend="gloo")
    assert isinstance(group, dist.ProcessGroup), "this rank is in it"
    return group


def _group_of_neighbours(place: RankPlace, size: int, *, backend: str | None = None) -> dist.ProcessGroup | None:
    """The process group of this rank among groups of `size` consecutive ranks; None for groups of one. Every rank
    creates every group, in the same order, as torch demands. Without a `backend` it is that of the default group."""
    if size == 1:
        return None
    groups = [dist.new_group([*range(begin, begin + size)], backend=backend) for begin in range(0, place.size, size)]
    own = groups[place.rank // size]
    assert isinstance(own, dist.ProcessGroup), "this rank is in it"
    return own
