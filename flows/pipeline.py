"""The stages of a run in their order. A stage that is finished is recognised and not made again."""

from typing import Any, Literal, get_args

from tasks.cold_start import cold_start
from tasks.context import RunContext
from tasks.evaluate import evaluate
from tasks.merge import describe, merge, push
from tasks.preflight import preflight
from tasks.prepare import prepare
from tasks.report import report
from tasks.train import settle, train_epoch

Stages = Literal["prepare", "train", "evaluate", "merge", "all"]
"""How far a run goes: up to this stage, with everything that it needs; `all` ends with the report."""


def carry_out(run: RunContext, stages: Stages) -> dict[str, Any] | None:
    """Carry out an open run up to `stages`. Returns the facts of the report, if the run goes that far."""
    wanted = _up_to(stages)
    preflight(run.name)
    prepare(run.name)
    if "train" in wanted:
        if run.config.cold_start:
            cold_start(run.name)
        for epoch in settle(run.name):
            train_epoch(run.name, epoch)
    if "evaluate" in wanted:
        evaluate(run.name, "base")
        evaluate(run.name, "trained")
    if "merge" in wanted:
        merge(run.name)
        describe(run.name)
        if run.config.merge.push:
            push(run.name)
    if "all" not in wanted:
        return None
    report(run.name)
    return run.outcome()


def _up_to(stages: Stages) -> tuple[str, ...]:
    order = get_args(Stages)
    return order[: order.index(stages) + 1]
