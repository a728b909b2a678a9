"""Calls the actors of all ranks at the same time, and notices when one of them dies or gets no further."""

import logging
import pickle
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

import ray
from ray.exceptions import RayError, RayTaskError

from rl_core.progress import TALLY, Tally
from rl_core.workers.dealing import the_same
from rl_core.workers.local_ray import LocalRay
from rl_core.workers.messages import Logged, Process, Pulse, RankAnswer, Taken, WorkerCall
from rl_core.workers.protocol import LostWorkers, WorkerDied
from rl_core.workers.worker_watch import WorkerWatch

_LOOK_SECONDS: Final = 1.0
"""How often the ranks are looked after in the middle of a call."""

SECONDS_AFTER_ERROR: Final = 5.0
"""How long the other ranks have to end their call after one of them has raised an error. Those that do not meet it
wait for ever in an operation of all ranks that the first one has left."""

_FEED_SECONDS: Final = 0.05
"""How often what is done meanwhile is done."""

_START: Final = "start"

_HANG_LIMIT: Final = "cluster.hang_timeout_seconds: raise it if such a call may take so long"

_END_SECONDS: Final = 30.0
"""Ranks that take longer to end their generators are killed."""


class TookTooLong(WorkerDied):
    """Ranks have been ended although none had died."""


def _start_limit(time: str) -> str:
    return f"{time} (cluster.start_timeout_seconds: raise it if the machine or its disk is merely slow)"


class ActorGroup:
    """The actors of all ranks.

    An error of a rank is raised here as it was there. After a death, a hang, an interruption, or an error that the
    other ranks do not have, all ranks are ended (`is_broken`), and every further call raises WorkerDied. Of
    `sent_bytes` a message that all ranks get counts once.
    """

    def __init__(
        self,
        actors: Sequence[Any],
        *,
        start_seconds: float,
        hang_seconds: float,
        reading_seconds: float = 0.0,
        member: str = "worker",
        local: LocalRay | None = None,
    ) -> None:
        """Call these actors, in the order of the ranks.

        Args:
            start_seconds: The longest time from now until `open` has ended, without `reading_seconds`.
            hang_seconds: The longest time of a call without any progress.
            reading_seconds: The longest time in which `open` reads weights.
            member: What a rank is called in messages.
            local: The cluster of the actors, if it was started here.
        """
        self.policy_version = 0
        self.sent_bytes = 0
        self._actors = actors
        self._member = member
        self._start_seconds = start_seconds
        self._reading_seconds = reading_seconds
        self._start_deadline = time.monotonic() + start_seconds
        self._watch = WorkerWatch(actors, member=member, hang_seconds=hang_seconds, heard=self._heard, local=local)
        self._local = local
        self._tallies = [Tally() for _ in actors]
        self.is_broken = False
        self._problem = ""
        self._lost: LostWorkers | None = None
        self._partner: ActorGroup | None = None

    def __len__(self) -> int:
        return len(self._actors)

    def end_with(self, partner: "ActorGroup") -> None:
        """End this group, too, when a rank of the other one is lost."""
        partner._partner = self

    def find_processes(self) -> None:
        """Wait until all actors run, and learn where. Raises WorkerDied if they do not within `start_seconds`."""
        asked = [actor.process.remote() for actor in self._actors]
        waiting = ray.wait(asked, num_returns=len(asked), timeout=self._seconds_to_start)[1]
        if waiting:
            late = [asked.index(ref) for ref in waiting]
            limit = _start_limit(f"{self._start_seconds:g} s")
            cause = f"the process of {self._watch.names(late)} did not start within {limit}"
            self._end(cause, self._watch.lost(late, cause), TookTooLong)
        self._watch.processes = [self._got(ref, rank, _START) for rank, ref in enumerate(asked)]

    @property
    def processes(self) -> Sequence[Process]:
        """[rank] -> where it runs."""
        return self._watch.processes

    def meeting(self, *, is_on_one_machine: bool) -> str:
        """The address at which the ranks meet, on the first one's machine."""
        asked = self._actors[0].meeting.remote(is_on_one_machine=is_on_one_machine)
        found: str = self._got(asked, 0, "meeting")
        return found

    def open(self, openings: Sequence[object]) -> None:
        """Open the worker of each rank."""
        messages = [self._packed(opening) for opening in openings]
        pending = {actor.open.remote(message): rank for rank, (actor, message) in self._with(messages)}
        self._gathered(pending, _START, seconds=self._seconds_to_start + self._reading_seconds)

    def call(self, method: str, *arguments: object, **options: object) -> list[Any]:
        """[rank] -> the result of the method, with the same arguments everywhere, which are sent to each machine
        once."""
        call = WorkerCall(method=method, arguments=arguments, options=options)
        shared = ray.put(self._packed(call))
        return self._gathered({actor.call.remote(shared): rank for rank, actor in enumerate(self._actors)}, f"{call}")

    def call_each(self, calls: Sequence[WorkerCall]) -> list[Any]:
        """[rank] -> the result of its call; all of them call the same method."""
        messages = [self._packed(call) for call in calls]
        pending = {actor.call.remote(message): rank for rank, (actor, message) in self._with(messages)}
        return self._gathered(pending, f"{calls[0]}")

    def call_concurrently(self, method: str, *arguments: object) -> list[Any]:
        """As `call`, in another thread and while other calls run."""
        message = self._packed(WorkerCall(method=method, arguments=arguments))
        calls = [actor.call.options(concurrency_group="snapshots").remote(message) for actor in self._actors]
        return self._values(
            self._answers({ref: rank for rank, ref in enumerate(calls)}, method, self._ready_concurrently)
        )

    def generate(self, ranks: Sequence[int], number: int, arguments: object) -> list[Any]:
        """Begin a generation. Returns the references of the answers."""
        message = self._packed(arguments)
        return [self._actors[rank].generate.remote(number, message) for rank in ranks]

    def take(self, rank: int, number: int) -> Any:
        """The reference of what a generation has finished, as soon as there is something."""
        return self._actors[rank].take.options(concurrency_group="rollouts").remote(number)

    def feed(self, ranks: Sequence[int], number: int, place: int, requests: object) -> None:
        """Give a generation further requests, or None after the last ones."""
        message = self._packed(requests)
        for rank in ranks:
            self._actors[rank].feed.options(concurrency_group="requests").remote(number, place, message)

    def stop(self, rank: int, number: int) -> None:
        """End a generation early."""
        self._actors[rank].stop.options(concurrency_group="watch").remote(number)

    def taken(self, ref: Any, rank: int) -> Taken:
        """What a reference of `take` has become."""
        taken: Taken = pickle.loads(self._got(ref, rank, "generate"))  # noqa: S301 - our own
        self._count(rank, taken.tally)
        return taken

    def finish(self, pending: Mapping[Any, int], method: str, *, seconds: float | None = None) -> None:
        """Wait for the ends of calls, [reference] -> rank. Raises the first error."""
        self._gathered(dict(pending), method, seconds=seconds)

    def ready(
        self,
        pending: Mapping[Any, int],
        method: str,
        *,
        seconds: float | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> list[Any]:
        """Those references of [reference] -> rank that are ready, at least one. Raises WorkerDied if a rank has died,
        or none has made progress for too long, or after `seconds`. What is to be done `meanwhile` is called many times
        a second."""
        if self.is_broken:
            why = f" ({self._problem})" if self._problem else ""
            raise WorkerDied(f"the workers of this run have been ended{why}: open new ones", self._lost)
        deadline = None if seconds is None else time.monotonic() + seconds
        self._watch.begin()
        try:
            while not (found := _first([*pending], meanwhile)):
                if death := self._watch.look(method):
                    self._end(death.message, death.lost)
                if deadline is None and (since := self._watch.hangs_since):
                    self._end_late(
                        f"no {self._member} has made any progress in {method} since {since:%H:%M:%S}, for more than "
                        f"{self._watch.hang_seconds:g} s ({_HANG_LIMIT})",
                        pending.values(),
                        waited_for=True,
                    )
                if deadline is not None and time.monotonic() > deadline:
                    limit = self._limit_of_open if method == _START else f"{seconds:g} s"
                    late = self._watch.names(pending.values())
                    self._end_late(f"{late} did not end {method} within {limit}", pending.values())
        except BaseException:
            self.is_broken = True  # nobody takes the answers of an interrupted call
            raise
        return found

    def close(self) -> None:
        """End the workers and their processes."""
        if not self.is_broken:
            message = pickle.dumps(WorkerCall(method="close"))
            ray.wait(
                [actor.call.remote(message) for actor in self._actors], num_returns=len(self), timeout=_END_SECONDS
            )
        self.kill()

    @property
    def _seconds_to_start(self) -> float:
        return max(0.0, self._start_deadline - time.monotonic())

    @property
    def _limit_of_open(self) -> str:
        reading = f" and {self._reading_seconds:g} s to read the weights" if self._reading_seconds else ""
        return _start_limit(f"{self._start_seconds:g} s{reading}")

    def _gathered(self, pending: dict[Any, int], method: str, *, seconds: float | None = None) -> list[Any]:
        """The results in the order of the ranks; raises the first error."""
        answers = self._answers(pending, method, self.ready, seconds=seconds, logs=True)
        versions = [answers[rank].policy_version for rank in sorted(answers)]
        self.policy_version = max(versions)
        values = self._values(answers)
        the_same(versions, "version of the weights")
        return values

    def _answers(
        self,
        pending: dict[Any, int],
        method: str,
        ready: Callable[..., list[Any]],
        *,
        seconds: float | None = None,
        logs: bool = False,
    ) -> dict[int, RankAnswer]:
        """[rank] -> the end of its call, in the order in which they have ended. If the other ranks do not end
        after an error, they are ended; where one of them has died, WorkerDied is raised, because the error is that of a
        rank which missed it. With `logs`, what the ranks have logged is logged here."""
        answers: dict[int, RankAnswer] = {}
        while pending:
            failed = _raised(answers)
            try:
                found = ready(pending, method, seconds=SECONDS_AFTER_ERROR if failed else seconds)
            except TookTooLong:
                if not failed:
                    raise
                self._note_ended(failed)
                break
            for ref in found:
                rank = pending.pop(ref)
                answer: RankAnswer = pickle.loads(self._got(ref, rank, method))  # noqa: S301 - our own
                self._count(rank, answer.tally)
                if logs:
                    self._log(rank, answer.logs)
                answers[rank] = answer
        return answers

    def _ready_concurrently(self, pending: Mapping[Any, int], method: str, *, seconds: float | None) -> list[Any]:
        """As `ready`, for a call while others run, which have the watch: a death comes out of a reference, and
        `seconds`, or else the limit on hangs, hold until the next one ends."""
        limit, key = (self._watch.hang_seconds, f" ({_HANG_LIMIT})") if seconds is None else (seconds, "")
        found: list[Any] = ray.wait([*pending], num_returns=1, timeout=limit)[0]
        if not found:
            if death := self._watch.on_lost_machine(pending.values(), method):
                self._end(death.message, death.lost)
            self._end_late(f"{method} has not ended after {limit:g} s{key}", pending.values(), waited_for=True)
        return found

    def _note_ended(self, failed: Mapping[int, BaseException]) -> None:
        names, error = self._watch.names(failed), next(iter(failed.values()))
        self._problem, self._lost = f"{names} raised {type(error).__name__}: {error}", None
        error.add_note(f"{names} raised this; the others waited for what it did not do, and have been ended")

    @staticmethod
    def _values(answers: Mapping[int, RankAnswer]) -> list[Any]:
        for rank, error in _raised(answers).items():
            raise error from answers[rank].cause
        return [answers[rank].value for rank in sorted(answers)]

    def _got(self, ref: Any, rank: int, method: str) -> Any:
        try:
            return ray.get(ref)
        except RayTaskError as error:  # a mistake in the actor's own program, with a stack in its text
            raise error.cause from error
        except RayError as error:
            death = self._watch.death(rank, error, method)
            self._end(death.message, death.lost, error=error)

    def _end_late(self, cause: str, ranks: Iterable[int], *, waited_for: bool = False) -> NoReturn:
        """End all ranks because these took too long. They are named as those that were `waited_for` unless the cause
        names them."""
        lost = self._watch.lost(ranks, cause, stacks=self._watch.stacks(ranks))
        self._end(f"{cause}; {lost.names} did not end it" if waited_for else cause, lost, TookTooLong)

    def _end(
        self,
        problem: str,
        lost: LostWorkers,
        kind: type[WorkerDied] = WorkerDied,
        *,
        error: BaseException | None = None,
    ) -> NoReturn:
        """End all ranks, which would wait for the lost one for ever. Of several problems the first one is reported."""
        if self._lost is None:
            self._problem, self._lost = problem, lost
        self.kill()
        if self._partner is not None:
            if self._partner._lost is None:
                self._partner._problem, self._partner._lost = self._problem, self._lost
            self._partner.kill()
        others = " The other workers have been ended." if len(self) > 1 else ""
        raised = kind(f"{self._problem}.{others}", self._lost)
        if self._lost is not None and self._lost.stacks:
            raised.add_note(self._lost.stacks)  # for a log with its traceback
        raise raised from error

    def kill(self) -> None:
        """End the processes of all ranks at once."""
        self.is_broken = True
        for actor in self._actors:
            ray.kill(actor)

    def _packed(self, message: object) -> bytes:
        """The message. Raises WorkerDied if the cluster is gone, to which a call might never return."""
        if self._local is not None and self._local.has_ended():
            cause = "Ray on this machine has ended since the last call"
            self._end(cause, self._watch.lost(range(len(self)), cause))
        packed = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self.sent_bytes += len(packed)
        return packed

    def _with(self, messages: Sequence[bytes]) -> "enumerate[tuple[Any, bytes]]":
        return enumerate(zip(self._actors, messages, strict=True))

    def _heard(self, rank: int, pulse: Pulse) -> None:
        self._count(rank, pulse.tally)
        self._log(rank, pulse.logs)

    def _count(self, rank: int, tally: Tally) -> None:
        """Count here what a rank has computed since its last message. A sign of life may come later than a message
        that was sent after it."""
        before = self._tallies[rank]
        if tally.sampled >= before.sampled and tally.passed >= before.passed:
            TALLY.add(tally.since(before))
            self._tallies[rank] = tally

    def _log(self, rank: int, records: Sequence[Logged]) -> None:
        """Log what a rank has logged; of further ranks, which say the same as the first one, only warnings."""
        for record in records:
            if rank == 0 or record.level >= logging.WARNING:
                prefix = "" if len(self) == 1 else f"{self._member} {rank}: "
                logging.getLogger(record.name).log(record.level, "%s%s", prefix, record.text)


def _first(pending: list[Any], meanwhile: Callable[[], None] | None) -> list[Any]:
    """Those that are ready before the next look at the ranks."""
    if meanwhile is None:
        return [*ray.wait(pending, num_returns=1, timeout=_LOOK_SECONDS)[0]]
    until, found = time.monotonic() + _LOOK_SECONDS, list[Any]()
    while not found and time.monotonic() < until:
        meanwhile()
        found = ray.wait(pending, num_returns=1, timeout=_FEED_SECONDS)[0]
    return found


def _raised(answers: Mapping[int, RankAnswer]) -> dict[int, BaseException]:
    """[rank] -> its error, in the order of time."""
    return {rank: answer.error for rank, answer in answers.items() if answer.error is not None}
