"""The baseline: from a config to a trained, evaluated, merged model and its report."""

from typing import Any

from prefect import State, flow

from flows.opening import name_of_run, opened_run, stopped
from flows.request import RUNS_DIR
from rl_core.engine.stop import Interrupted
from tasks.cold_start import cold_start
from tasks.evaluate import evaluate
from tasks.merge import describe, merge, push
from tasks.preflight import preflight
from tasks.prepare import prepare
from tasks.report import report
from tasks.train import settle, train_epoch


@flow(name="baseline", flow_run_name=name_of_run)
def baseline(
    config: str,
    overrides: list[str] | None = None,
    runs_dir: str = RUNS_DIR,
    tag: str | None = None,
    fresh: bool = False,
) -> dict[str, Any] | State[Any]:
    """Train, evaluate and merge what a config describes; called again, it continues.

    Args:
        config: A config file, or the folder of a run to continue.
        overrides: `key.path=value` texts laid over the config file.
        runs_dir: Where runs lie.
        tag: Makes a run of its own that takes nothing over from others.
        fresh: The same, tagged with the start of this flow run: for schedules.

    Returns:
        Accuracies of the base and the trained model.
    """
    try:
        with opened_run(config, overrides, runs_dir=runs_dir, tag=tag, fresh=fresh) as run:
            preflight(run.name)
            prepare(run.name)
            if run.config.cold_start:
                cold_start(run.name)
            for epoch in settle(run.name):
                train_epoch(run.name, epoch)
            evaluate(run.name, "base")
            evaluate(run.name, "trained")
            merge(run.name)
            describe(run.name)
            if run.config.merge.push:
                push(run.name)
            report(run.name)
            return run.outcome()
    except Interrupted as stop:
        return stopped(stop)
