"""Looks after the ranks in the middle of a call: whether they live and get on."""

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError

from rl_core.progress import Tally
from rl_core.wording import last_statement
from rl_core.workers.cluster_machines import is_lost
from rl_core.workers.local_ray import LocalRay
from rl_core.workers.messages import Process, Pulse
from rl_core.workers.protocol import LostWorkers

_STACKS_SECONDS: Final = 10.0

_CAUSE_SECONDS: Final = 5.0
"""How long Ray has to find out why a worker does not answer; it knows of an ended process at once, of a machine
late."""

_GONE: Final = "its machine is gone"

_LOST: Final = f"{_GONE}, or Ray on it has ended: it takes no connections any more"

_MEMORY: Final = (
    "Ray's memory monitor ended it, because its machine had less free memory than it leaves alone: more than "
    "RAY_memory_usage_threshold of it (0.95 if it is not set) was in use. Give the run less to keep there, such as "
    "fewer workers on a machine, or more memory"
)
_MEMORY_USED: Final = r"(Memory on the node .*?exceeded threshold of [^()]*(?:\([^()]*\))?)"
_MEMORY_USERS: Final = r"(Top \d+ memory users: .*?)(?: Refer to|$)"
_LONGEST_FACT: Final = 600

_SILENT: Final = (
    "its process ended without a word, as by a signal: SIGKILL, which the kernel sends when a machine or a container "
    "runs out of memory (`dmesg` names the process), or a crash inside a library"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Death:
    """How a rank has died: a message of one sentence, and what was lost with it."""

    message: str
    lost: LostWorkers


class WorkerWatch:
    """Asks every rank for a sign of life about once a second. `processes` is where they run, as soon as that is
    known."""

    def __init__(
        self,
        actors: Sequence[Any],
        *,
        member: str,
        hang_seconds: float,
        heard: Callable[[int, Pulse], None],
        local: LocalRay | None,
    ) -> None:
        """Watch these actors; the arguments are those of ActorGroup. Every sign of life goes to `heard`."""
        self.processes: Sequence[Process] = ()
        self._actors = actors
        self._member = member
        self.hang_seconds = hang_seconds
        self._heard = heard
        self._local = local
        self._asked: dict[int, Any] = {}
        self._progress: dict[int, tuple[int, Tally]] = {}
        self._since = time.monotonic()

    def begin(self) -> None:
        """Something is waited for from now on."""
        self._since = time.monotonic()

    def name(self, rank: int) -> str:
        """`worker 1 of 4 (process 4711 on host)`."""
        place = f" (process {self.processes[rank].pid} on {self.processes[rank].host})" if self.processes else ""
        return f"{self._member} {rank} of {len(self._actors)}{place}"

    def names(self, ranks: Iterable[int]) -> str:
        """What these ranks are called."""
        return ", ".join(map(self.name, sorted({*ranks})))

    def lost(self, ranks: Iterable[int], cause: str, *, stacks: str = "") -> LostWorkers:
        """These ranks, lost together."""
        chosen = {*ranks}
        machines = sorted({self.processes[rank].host for rank in chosen}) if self.processes else []
        return LostWorkers(names=self.names(chosen), machines=machines, cause=cause, stacks=stacks)

    def death(self, rank: int, error: RayError, method: str) -> Death:
        """How a rank has died in `method`."""
        return self._ended(rank, method, self._cause(rank, error))

    def _ended(self, rank: int, method: str, cause: str) -> Death:
        words = self._local.last_words(self.processes[rank].pid) if self._local and self.processes else ""
        last = last_statement(words)
        wrote = f"; it wrote last: {last}" if last else ""
        message = f"{self.name(rank)} ended during {method}: {cause}{wrote}"
        lost = self._ranks_of_machine(rank) if cause.startswith(_GONE) else [rank]
        return Death(message=message, lost=self.lost(lost, cause, stacks=words))

    def _ranks_of_machine(self, rank: int) -> list[int]:
        """The ranks on the machine of a rank."""
        node = self.processes[rank].node_id
        return [other for other, process in enumerate(self.processes) if process.node_id == node]

    def look(self, method: str) -> Death | None:
        """Take the signs of life that came, and ask for the next ones. Returns how a rank has died in `method`; None if
        all live. Ray may take half a minute to know of a machine that is gone, so the machine of a rank
        that has been silent since the last look is looked for here."""
        asked_before = {*self._asked}
        for rank, actor in enumerate(self._actors):
            if rank not in self._asked:
                self._asked[rank] = actor.pulse.options(concurrency_group="watch").remote()
        if came := ray.wait([*self._asked.values()], num_returns=len(self._asked), timeout=0)[0]:
            for rank, ref in [item for item in self._asked.items() if item[1] in came]:
                del self._asked[rank]
                try:
                    self._felt(rank, ray.get(ref))
                except RayError as error:
                    return self.death(rank, error, method)
        return self.on_lost_machine(asked_before.intersection(self._asked), method)

    def on_lost_machine(self, ranks: Iterable[int], method: str) -> Death | None:
        """How one of these ranks has died in `method` with its machine; None if none of their machines is gone."""
        return next((self._ended(rank, method, _LOST) for rank in ranks if self._is_lost(rank)), None)

    @property
    def hangs_since(self) -> datetime | None:
        """Since when no rank has made any progress, if that is too long; otherwise None."""
        seconds = time.monotonic() - self._since
        return datetime.now() - timedelta(seconds=seconds) if seconds > self.hang_seconds else None

    def stacks(self, ranks: Iterable[int]) -> str:
        """What the threads of these ranks are doing, as far as they answer."""
        asked = {rank: self._actors[rank].stacks.options(concurrency_group="watch").remote() for rank in {*ranks}}
        ray.wait([*asked.values()], num_returns=len(asked), timeout=_STACKS_SECONDS)
        return "\n".join(f"{self.name(rank)}:\n{_text(ref)}" for rank, ref in asked.items())

    def _cause(self, rank: int, error: RayError) -> str:
        """Why a rank has died. Ray first says about some that they do not answer; then it is asked again."""
        deadline = time.monotonic() + _CAUSE_SECONDS
        while isinstance(error, ActorUnavailableError) and time.monotonic() < deadline:
            if self._is_lost(rank):
                return _LOST
            time.sleep(_CAUSE_SECONDS / 10)
            try:
                ray.get(self._actors[rank].pulse.options(concurrency_group="watch").remote(), timeout=_CAUSE_SECONDS)
            except GetTimeoutError:
                break
            except RayError as later:
                error = later
        return cause_of_death(error)

    def _is_lost(self, rank: int) -> bool:
        """Whether the machine of a rank is gone."""
        if self._local is not None:
            return self._local.has_ended()
        return bool(self.processes) and is_lost(self.processes[rank].node_id)

    def _felt(self, rank: int, pulse: Pulse) -> None:
        progress = (pulse.progress, pulse.tally)
        if self._progress.get(rank) != progress:
            self._progress[rank] = progress
            self.begin()
        self._heard(rank, pulse)


def _text(ref: Any) -> str:
    try:
        found: str = ray.get(ref, timeout=0)
    except RayError as error:  # GetTimeoutError is one
        return f"it does not answer ({type(error).__name__})"
    return found


def _memory_facts(text: str) -> str:
    """How much memory was used, the threshold, and who used most of it, from the long text of Ray's memory monitor."""
    found = (re.search(pattern, text) for pattern in (_MEMORY_USED, _MEMORY_USERS))
    return "; ".join(match[1][:_LONGEST_FACT] for match in found if match) or text[:_LONGEST_FACT]


def cause_of_death(error: RayError) -> str:
    """Why a rank has died, from what Ray says about it."""
    text = " ".join(f"{error}".split())
    if "low on memory" in text or "memory usage threshold" in text:
        return f"{_MEMORY} ({_memory_facts(text)})"
    if "node has died" in text or "node died" in text or "unexpected node" in text:
        return f"{_GONE} ({text[-400:]})"
    if code := re.search(r"exit code (-?\d+)|Exit code: (-?\d+)", text):
        return f"its process ended with exit code {code[1] or code[2]}"
    return _SILENT if "End of file" in text else text
