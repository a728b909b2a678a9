"""The flow of a set of runs, each in a process of its own: at the same time where the machine has slots for several,
one after the other where it has not. They start in their order."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from prefect import Flow, State, runtime, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import FlowRun
from prefect.flows import FlowStateHook
from prefect.futures import PrefectConcurrentFuture
from prefect.states import Completed, Failed
from prefect.utilities.callables import get_parameter_defaults

from flows.process.failed_flows import ended_early, keep_resume_command, show_ending, state_message
from flows.process.flow_runs import flow_run_name, planned_start
from flows.process.late_end import end_reported_later
from flows.process.open_run import flow_run_id, outlive_the_worker, start
from flows.process.own_process import run_alone
from flows.process.watcher import current_watcher, watched_by
from flows.request import ResolvedRun
from flows.run_set import PlannedRun, RunSet
from rl_core.planning.slots import Need, Slot, Slots, at_once_words, is_ever_shared, needs_of, this_machine
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import lock_owner
from rl_core.stop import Interrupted, StopRequest, stopped_by_signals
from tasks.cache.manifests import is_recorded
from tasks.cache.reuse import is_finished
from tasks.cache.stages import stage_digests

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 0.5


def _carry_out_runs(
    planned: Sequence[PlannedRun], *, title: str, before: Callable[[PlannedRun], None], stop: StopRequest
) -> list["EndedRun"]:
    """Carry out the runs; a finished run is recognised.

    Only one run prepares its data at a time: the next one takes them over, if it has the same, and finds what a first
    run makes for all, such as MLflow's database. Raises Interrupted where a stop was requested, and the runs have
    ended."""
    machine, needs = this_machine(), needs_of([plan.resolved.config for plan in planned])
    is_shared = is_ever_shared(needs, machine)
    if len(planned) > 1:
        logger.info("%d runs, %s", len(planned), at_once_words(needs, machine))
    if is_shared:
        # They may have other devices than they will get now.
        for plan in planned:
            _wait_for_others(plan.resolved.run, stop)
    running = _RunningRuns(Slots(machine), stop)
    try:
        for plan, need in zip(planned, needs, strict=True):
            slot = running.wait_for_slot(need)
            before(plan)
            is_followed = is_shared and plan is not planned[-1]
            digest = _digest_of_data(plan.resolved, stop) if is_followed else None
            running.begin(f"{title} {plan.name}".strip(), plan.resolved, slot, is_shared=is_shared)
            if is_followed:
                running.wait_for_data(plan.resolved.run, digest)
    except Exception as error:
        if not isinstance(error, Interrupted):
            logger.error("no further run is started; the set ends when those that were begun have ended: %s", error)
        raise
    finally:
        failures = running.failures()
    stop.raise_if_requested()
    return [EndedRun(plan=plan, failure=why) for plan, why in zip(planned, failures, strict=True)]


class _RunningRuns:
    """The runs that were begun, and the slots that they have."""

    def __init__(self, slots: Slots, stop: StopRequest) -> None:
        self._slots = slots
        self._stop = stop
        self._begun: list[PrefectConcurrentFuture[Any]] = []
        self._in_slots: dict[futures.Future[Any], Slot] = {}

    def wait_for_slot(self, need: Need) -> Slot:
        """A slot for the next run, when there is one. Raises Interrupted if a stop is requested."""
        while True:
            self._stop.raise_if_requested()
            for ended in [future for future in self._in_slots if future.done()]:
                self._slots.give_back(self._in_slots.pop(ended))
            if (slot := self._slots.take(need)) is not None:
                return slot
            futures.wait(self._in_slots, timeout=_SECONDS_BETWEEN_LOOKS, return_when=futures.FIRST_COMPLETED)

    def begin(self, title: str, resolved: ResolvedRun, slot: Slot, *, is_shared: bool) -> None:
        """Carry out a run in a thread."""
        future = carried_out.submit(title, resolved, slot, is_shared=is_shared)
        assert isinstance(future, PrefectConcurrentFuture), "the flow's task runner has threads"
        self._begun.append(future)
        self._in_slots[future.wrapped_future] = slot

    def wait_for_data(self, run: RunDirectory, digest: str | None) -> None:
        """Wait until the run that was begun last has prepared its data, or has ended, or a stop is requested."""
        newest = self._begun[-1].wrapped_future
        while not newest.done() and not is_recorded(run, "prepare", digest):
            self._stop.raise_if_requested()
            futures.wait([newest], timeout=_SECONDS_BETWEEN_LOOKS)

    def failures(self) -> list[str | None]:
        """Wait until all runs that were begun have ended. Returns why each of them did not finish."""
        for future in self._begun:
            future.wait()  # after which it knows the state
        states = [future.state for future in self._begun]
        return [None if state.is_completed() else state.message or state.name for state in states]


def _digest_of_data(resolved: ResolvedRun, stop: StopRequest) -> str | None:
    """The digest of `prepare` as the run's own process will have it; None where the data cannot be read."""
    try:
        with stop.breaking_off():
            return stage_digests(resolved.config, replace(resolved, is_continued=True).files())["prepare"]
    except (ValueError, OSError):
        return None


@task(name="run of a set", task_run_name="{title}", cache_policy=NO_CACHE)
def carried_out(title: str, resolved: ResolvedRun, slot: Slot, *, is_shared: bool) -> State[Any]:
    """Carry out a run in a process of its own, unless it is finished. Where others are carried out at the same time,
    each line that it prints comes after its title."""
    stop, run = current_watcher().stop, resolved.run
    _wait_for_others(run, stop)
    if is_finished(resolved.config, run):
        logger.info("%s: %s was finished before", title, run.name)
        return Completed(name="Cached", message=f"{run.name} was finished before")
    logger.info("%s: %s", title, run.name)
    failure = run_alone(resolved, stop, variables=slot.variables, name=title if is_shared else None)
    return Failed(message=failure) if failure else Completed(message=run.name)


def _wait_for_others(run: RunDirectory, stop: StopRequest) -> None:
    """Wait until no other process writes the run: after a set was killed, its run still goes on to a checkpoint."""
    owner = lock_owner(run.lock)
    if owner is not None:
        logger.warning("%s is being written by the process with pid %s: waiting for its end", run.name, owner)
    while lock_owner(run.lock) is not None:
        stop.raise_if_requested()
        time.sleep(_SECONDS_BETWEEN_LOOKS)


Set = TypeVar("Set", bound=RunSet)
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedRun:
    """A run of a set, and why it did not finish; None when it did."""

    plan: PlannedRun
    failure: str | None


def in_set(
    kind: type[Set],
    parameters: Mapping[str, Any],
    conclude: Callable[[Set, Sequence[EndedRun]], Result],
    *,
    before: Callable[[Set, PlannedRun], None] = lambda run_set, plan: None,
) -> Result | State[Any]:
    """Carry out the runs of the set that a flow was asked for; a finished run is recognised. Returns the result of
    `conclude`, or the final state of a flow run that an exception ended."""
    watcher = current_watcher()
    with (
        watcher,
        end_reported_later(flow_run_id(), is_of_worker=outlive_the_worker()),
        watched_by(watcher),
        watcher.stop.taking_effect(lambda: "when the runs that were begun have stopped, each after its step"),
        stopped_by_signals(watcher.stop),
    ):
        run_set = kind.of_parameters(parameters, start())
        planned = run_set.planned()
        if problems := run_set.fatal_problems():
            raise ValueError("\n".join(problems))
        run_set.save()
        watcher.command = run_set.command
        ended = _carry_out_runs(
            planned, title=run_set.title, before=lambda plan: before(run_set, plan), stop=watcher.stop
        )
        return conclude(run_set, ended)
    return ended_early(watcher, flow_run_id())


def name_of_set(kind: type[RunSet], what: str) -> Callable[[], str]:
    """Names flow runs: from their start, the name of their set, and the overrides."""

    def name() -> str:
        parameters = runtime.flow_run.parameters
        try:
            which = kind.of_parameters(parameters, start()).name
        except ValueError:
            which = ""  # the flow itself says what is wrong
        return flow_run_name(what, start(), which, overrides=parameters["overrides"])

    return name


def explain_end(kind: type[RunSet]) -> FlowStateHook[..., Any]:
    """A hook for flow runs whose process was killed: it writes how to continue."""

    def explain(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
        # A deployment's run has the parameters that were given.
        parameters = get_parameter_defaults(flow.fn) | flow_run.parameters
        command = _command(kind, parameters, flow_run)
        show_ending(flow_run.id, state_message(state), command=command)
        keep_resume_command(flow_run.id, state, command)

    return explain


def _command(kind: type[RunSet], parameters: Mapping[str, Any], flow_run: FlowRun) -> str | None:
    """The command that continues a set; None when the set was refused before it was saved."""
    try:
        run_set = kind.of_parameters(parameters, planned_start(flow_run))
    except ValueError as error:
        logger.warning("the set cannot be named: %s", error)
        return None
    return run_set.command if run_set.is_saved else None
