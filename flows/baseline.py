"""The flow `baseline`: from a config to a trained, evaluated and merged model with its report."""

from typing import Any

from prefect import State, flow

from flows.parameters import Overrides
from flows.pipeline import Stages, carry_out
from flows.process.failed_flows import ENDINGS
from flows.process.open_run import in_run, name_of_run
from flows.request import RunRequest
from rl_core.run_directory import RUNS_DIR


@flow(name="baseline", flow_run_name=name_of_run, **ENDINGS)
def baseline(
    config: str = "",
    overrides: Overrides = (),
    resume: str = "",
    stages: Stages = "all",
    fresh: bool = False,
    runs_dir: str = RUNS_DIR,
) -> dict[str, Any] | State[Any] | None:
    """Train, evaluate and merge as a config says. Called again, the flow continues its run.

    Args:
        config: A config file, such as configs/quickstart.yaml.
        overrides: Changes to single keys of the config, each `key.path=value`.
        resume: Name of a run to continue, with the config that it was started with.
        stages: How far to go: up to this stage, with everything that it needs.
        fresh: Make a new run that takes nothing over from other runs, as a scheduled run should.
        runs_dir: Folder of the runs.

    Returns:
        Accuracies of the base and the trained model, if the run went as far as its report.
    """
    request = RunRequest(config=config, overrides=overrides, resume=resume, fresh=fresh, runs_dir=runs_dir)
    return in_run(request, lambda run: carry_out(run, stages))
