"""The section `cluster`: the workers that train one model together, and where they run."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, field_validator
from typing_extensions import override

from rl_core.distributed.place import Layout
from rl_core.problem import Problem
from rl_core.section import Kwargs, Section, refuse_secrets

WorkerDevice = Literal["auto", "cpu", "cuda"]
"""What a worker computes on."""


class ClusterConfig(Section):
    """The workers that train one model together, one on each device; by default a single one."""

    nodes: int = Field(default=1, ge=1, le=1024)
    """Machines of the run."""
    devices: int = Field(default=1, ge=1, le=64)
    """Workers on each machine: its GPUs, or without GPUs processes that share its cores."""
    placement: Literal["colocated", "split"] = "colocated"
    """`colocated`: every worker generates and trains in turn. `split`: some workers of each machine only generate, and
    the others only train."""
    generating_devices: int = Field(default=1, ge=1, le=63)
    """Workers of each machine that generate with `placement: split`."""
    address: str = Field(default="local", pattern=r"^(local|auto|ray://\S+|[^\s:/]+:\d+)$")
    """The Ray cluster: `local` starts one on this machine for the run, `auto` joins the one that runs here or that
    RAY_ADDRESS names, `HOST:PORT` the one there, `ray://HOST:PORT` through Ray's client server."""
    device: WorkerDevice = "auto"
    """What each worker computes on; `auto` is a GPU where there is one, else the CPU."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """Threads of each worker on a CPU; another number changes the last bits. Null takes OMP_NUM_THREADS, or else the
    worker's share of the cores."""
    sharding: Layout = "full"
    """Where weights, gradients and moments lie: spread over all workers (`full`), over those of each machine
    (`hybrid`), or whole in each worker (`none`)."""
    dealing: Literal["static", "dynamic"] = "static"
    """How prompts come to the generators: each gets equally many at once (`static`), or one that is done takes more
    (`dynamic`). No response depends on it, but for rounding."""
    tensor_parallel_size: int = Field(default=1, ge=1, le=64)
    """Workers of a machine that hold one generator together (tensor parallelism). It must divide `devices` and the
    model's attention heads."""
    sequence_parallel_size: int = Field(default=1, ge=1, le=64)
    """Workers that compute each sequence together in an update (Ulysses), so that activations take less memory. It must
    divide the number of workers and the model's attention heads."""
    min_workers: int | None = Field(default=None, ge=1)
    """Fewest workers, equally many on each machine, with which training goes on when a machine or a device is gone and
    nothing has replaced it within `wait_for_all_seconds`; null: only all workers together train."""
    wait_for_all_seconds: float = Field(default=300.0, gt=0.0)
    """With `min_workers`, how long an attempt waits for room for all workers."""
    start_timeout_seconds: float = Field(default=300.0, gt=0.0)
    """Longest time until all workers have their devices, and then until they have loaded the model. The time in which a
    disk of 50 MB/s reads the model's weights is added."""
    hang_timeout_seconds: float = Field(default=7200.0, gt=0.0)
    """Longest time in which no worker samples or computes a token or ends a call; after that training is tried again
    from the last checkpoint. It must be longer than the longest micro-batch, optimizer step and save."""
    runtime_env: Kwargs = {}
    """Ray's runtime environment of the workers, such as `{env_vars: {NCCL_SOCKET_IFNAME: eth0}}`; secrets belong in the
    environment of each machine."""

    _secrets_are_refused = field_validator("runtime_env")(refuse_secrets)

    @property
    def ranks(self) -> int:
        """Number of workers."""
        return self.nodes * self.devices

    @property
    def is_split(self) -> bool:
        """Whether some workers only generate and the others only train."""
        return self.placement == "split"

    @property
    def training_devices(self) -> int:
        """Workers of each machine that train. Where none would be left, which `plan` refuses, this is 1."""
        return max(1, self.devices - self.generating_devices) if self.is_split else self.devices

    @property
    def trainers(self) -> int:
        """Number of workers that train."""
        return self.nodes * self.training_devices

    @property
    def generators(self) -> int:
        """Number of workers that generate."""
        return self.nodes * self.generating_devices if self.is_split else self.ranks

    @property
    def is_alone(self) -> bool:
        """Whether the run has a single worker, which on a CPU is in the run's process."""
        return self.ranks == 1 and self.address == "local" and self.device == "auto"

    @override
    def problems(self) -> Iterator[Problem]:
        yield from self._together_problems()
        if self.is_split:
            yield from self._split_problems()
        if self.min_workers is not None:
            yield from self._fewest_problems(self.min_workers)
        variables = self.runtime_env.get("env_vars", {})
        if not isinstance(variables, dict) or not all(isinstance(value, str) for value in variables.values()):
            yield Problem(
                "runtime_env",
                "env_vars is a mapping of names to texts",
                "put the values into quotes, as in {env_vars: {NCCL_DEBUG: 'INFO', NCCL_IB_DISABLE: '1'}}",
            )

    def _together_problems(self) -> Iterator[Problem]:
        """Workers that cannot compute a sequence or hold a generator together."""
        size = self.sequence_parallel_size
        if self.trainers % size:
            yield Problem(
                "sequence_parallel_size",
                f"{self.trainers} worker(s) cannot be put together in groups of {size}",
                "choose a divisor of the number of workers that train",
            )
        elif self.training_devices % size:
            yield Problem(
                "sequence_parallel_size",
                f"groups of {size} workers on machines of {self.training_devices} are spread over machines, and every "
                "layer sends all of its states over the network, twice",
                "choose a divisor of cluster.devices",
                fatal=False,
            )
        if self.devices % self.tensor_parallel_size:
            yield Problem(
                "tensor_parallel_size",
                f"the {self.devices} worker(s) of a machine cannot hold generators in groups of "
                f"{self.tensor_parallel_size}",
                "choose a divisor of cluster.devices",
            )

    def _split_problems(self) -> Iterator[Problem]:
        """Workers that only generate or only train, where one kind is missing."""
        if self.generating_devices >= self.devices:
            yield Problem(
                "generating_devices",
                f"{self.generating_devices} of the {self.devices} worker(s) of each machine would generate, and none "
                "would be left to train",
                "lower it, raise cluster.devices, or set cluster.placement to colocated",
            )
        if self.tensor_parallel_size > 1:
            yield Problem(
                "tensor_parallel_size",
                "with cluster.placement split each generating worker has a whole generator",
                "set it to 1, or cluster.placement to colocated",
            )
        if self.min_workers is not None:
            yield Problem(
                "min_workers",
                "with cluster.placement split every machine needs the workers that it was planned with",
                "leave this key out, or set cluster.placement to colocated",
            )

    def _fewest_problems(self, fewest: int) -> Iterator[Problem]:
        """A number of workers that training could never go on with."""
        if fewest > self.ranks:
            yield Problem(
                "min_workers",
                f"{fewest} workers are more than the {self.ranks} of the run",
                f"set it to {self.ranks} or less",
            )
        if self.address.startswith("ray://"):
            yield Problem(
                "min_workers",
                "through ray:// a run cannot see what is left on which machine",
                "start the run on a machine of the cluster, with cluster.address auto, or leave this key out",
            )
