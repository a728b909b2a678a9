"""Parts of the baseline, for who wants to look in between. Each makes what it needs and is not there yet."""

from collections.abc import Callable
from typing import Any

from prefect import Flow, State, flow

from flows.opening import name_of_run, opened_run, stopped
from flows.request import RUNS_DIR
from rl_core.engine.stop import Interrupted
from tasks.cold_start import cold_start
from tasks.context import RunContext
from tasks.evaluate import evaluate
from tasks.merge import describe, merge, push
from tasks.preflight import preflight
from tasks.prepare import prepare
from tasks.train import settle, train_epoch

PartialFlow = Flow[..., Any]


def _prepared(run: RunContext) -> None:
    preflight(run.name)
    prepare(run.name)


def _trained(run: RunContext) -> None:
    _prepared(run)
    if run.config.cold_start:
        cold_start(run.name)
    for epoch in settle(run.name):
        train_epoch(run.name, epoch)


def _evaluated(run: RunContext) -> None:
    _trained(run)
    evaluate(run.name, "base")
    evaluate(run.name, "trained")


def _merged(run: RunContext) -> None:
    _evaluated(run)  # the model's card tells its accuracy
    merge(run.name)
    describe(run.name)
    if run.config.merge.push:
        push(run.name)


def _partial(name: str, body: Callable[[RunContext], None]) -> PartialFlow:
    def part(
        config: str, overrides: list[str] | None = None, runs_dir: str = RUNS_DIR, push: str | None = None
    ) -> State[Any] | None:
        try:
            with opened_run(config, overrides, runs_dir=runs_dir, push=push) as run:
                body(run)
        except Interrupted as stop:
            return stopped(stop)
        return None

    return flow(name=name, flow_run_name=name_of_run)(part)


prepare_part = _partial("prepare", _prepared)
train_part = _partial("train", _trained)
evaluate_part = _partial("evaluate", _evaluated)
merge_part = _partial("merge", _merged)
