"""Workers of which some only generate and the others only train (`cluster.placement: split`)."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final

from typing_extensions import override

from rl_core.workers.actor_group import ActorGroup
from rl_core.workers.folders import Opening
from rl_core.workers.messages import WorkerCall
from rl_core.workers.protocol import Loaded, WorkerDied
from rl_core.workers.ray_group import RayWorkerGroup
from rl_core.workers.usage import Usage
from rl_core.workers.weight_link import LinkPlace

_PATIENCE_SECONDS: Final = 15.0
"""How long a call that has failed waits for the other one: if a worker has died there, that is noticed meanwhile."""


class SplitWorkerGroup(RayWorkerGroup):
    """A RayWorkerGroup whose workers train, and a second group of actors, which generate.

    The generators always have their devices, so `sleep` does nothing, and they may generate in one thread while another
    one has the trainers at work. `wake` sends them the weights, if these have changed, over a link between the first
    trainer and all generators.
    """

    _generating: ActorGroup | None = None
    _have_the_frozen_weights = False
    _have_the_trained_weights = False

    @override
    def _open(self, opening: Opening) -> None:
        self._sends_adapters = opening.config.model.generator_lora is not None
        config, actors = self.cluster, self._cluster.actors()
        trains = [rank % config.devices < config.training_devices for rank in range(config.ranks)]
        training = [actor for actor, trains_here in zip(actors, trains, strict=True) if trains_here]
        generating = [actor for actor, trains_here in zip(actors, trains, strict=True) if not trains_here]
        self._group = self._opened_group(training, opening, role="train")
        self._generating = self._opened_group(generating, opening, role="generate")
        self._group.end_with(self._generating)
        self._log_hosts(self._group, "train one model")
        self._log_hosts(self._generating, "generate")
        self._join_link()

    @override
    def wake(self) -> None:
        if not self._generator_has_started:
            with self._progress.wait(f"start {len(self._generators)} generator(s) (vLLM) in the workers' processes"):
                self._generators.call("wake")
            self._generator_has_started = True
        if self._have_the_trained_weights:
            return
        if not (self._sends_adapters and self._have_the_frozen_weights):
            self._transfer("weights")
        if self._sends_adapters:
            self._transfer("adapters")
        self._have_the_frozen_weights = self._have_the_trained_weights = True

    @override
    def load(self, what: Loaded, folder: Path) -> None:
        if what not in ("reference", "critic"):  # generators do not have these
            self._have_the_frozen_weights = self._have_the_trained_weights = False
        super().load(what, folder)

    @override
    def sleep(self) -> None:
        """The generators keep their devices."""

    @override
    def close(self) -> None:
        try:
            if self._generating is not None:
                self._generating.close()
        finally:
            self._generating = None
            super().close()

    @property
    @override
    def _generators(self) -> ActorGroup:
        assert self._generating is not None, "open"
        return self._generating

    @override
    def _usages(self) -> list[Usage]:
        return [*super()._usages(), *self._generators.call("usage")]

    @property
    @override
    def _sent_bytes(self) -> int:
        return super()._sent_bytes + self._generators.sent_bytes

    @override
    def _before(self, method: str) -> None:
        """Know whether the generators' weights are the trainers'. A generation goes on during the method."""
        self._have_the_frozen_weights &= method != "imitate"
        self._have_the_trained_weights &= method not in ("imitate", "update")

    def _transfer(self, what: str) -> None:
        """Have the trainers send weights, and the generators receive them as the present version."""
        version = self.policy_version
        self._at_both(lambda: self._generators.call("receive", what, version), lambda: self._workers.call("send", what))

    def _join_link(self) -> None:
        """Have the first trainer and all generators meet."""
        config = self.cluster
        meeting = self._workers.meeting(is_on_one_machine=config.nodes == 1)
        places = [
            LinkPlace(
                number=number, size=1 + len(self._generators), meeting=meeting, seconds=config.hang_timeout_seconds
            )
            for number in range(1 + len(self._generators))
        ]
        self._at_both(
            lambda: self._generators.call_each(
                [WorkerCall(method="join_link", arguments=(each,)) for each in places[1:]]
            ),
            lambda: self._workers.call("join_link", places[0]),
        )

    def _at_both(self, call_generators: Callable[[], object], call_trainers: Callable[[], object]) -> None:
        at_once(Side(call=call_generators, end=self._generators.kill), Side(call=call_trainers, end=self._workers.kill))


@dataclass(kw_only=True, slots=True)
class Side:
    """One of the two calls. `end` ends the workers to which it is made, and with them the call."""

    call: Callable[[], object]
    end: Callable[[], object]
    was_ended: bool = False
    is_over: Event = field(default_factory=Event)


def at_once(one: Side, other: Side, *, patience_seconds: float = _PATIENCE_SECONDS) -> None:
    """Make both calls at the same time. If one fails, the workers of the other, which would wait for it, are ended.
    Raises WorkerDied if a worker has died, of which the other side may have felt before that its connection broke, or
    else the first error."""
    causes: list[BaseException] = []

    def run(own: Side, second: Side) -> None:
        try:
            own.call()
        except BaseException as error:  # noqa: BLE001 - raised below, or the end of a side
            if not own.was_ended:
                causes.append(error)
            own.is_over.set()
            if isinstance(error, WorkerDied) or not second.is_over.wait(patience_seconds):
                second.was_ended = True
                second.end()
        else:
            own.is_over.set()

    with ThreadPoolExecutor(1, thread_name_prefix="one-of-two-calls") as thread:
        thread.submit(copy_context().run, run, one, other)
        run(other, one)
    if causes:
        raise next((cause for cause in causes if isinstance(cause, WorkerDied)), causes[0])
