"""The flow `baseline`, from a config to a trained, evaluated and merged model with its report, and its parts, each of
which ends at one stage. A stage that is finished is recognised and not made again."""

from typing import Any, Literal, get_args

from prefect import Flow, State, flow

from flows.process.failed_flows import ENDINGS
from flows.process.open_run import in_run, name_of_run
from flows.request import FROZEN, ConfigFile, Overrides, RunRequest
from rl_core.run_directory import RUNS_DIR
from tasks.cold_start import cold_start
from tasks.context import RunContext
from tasks.evaluate import evaluate
from tasks.merge import describe, merge, push
from tasks.preflight import preflight
from tasks.prepare import prepare
from tasks.report import report
from tasks.train import take_up, train_epoch

Stages = Literal["prepare", "train", "evaluate", "merge", "all"]
"""How far a run goes: up to this stage, with everything that it needs; `all` ends with the report."""


def carry_out(run: RunContext, stages: Stages) -> dict[str, Any] | None:
    """Carry out an open run up to `stages`. Returns the facts of the report, if the run goes that far."""
    order = get_args(Stages)
    wanted = order[: order.index(stages) + 1]
    preflight(run.name)
    prepare(run.name)
    if "train" in wanted:
        if run.config.cold_start:
            cold_start(run.name)
        for epoch in take_up(run.name):
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
    return dict(run.manifests["report"].result)


@flow(name="baseline", flow_run_name=name_of_run, **ENDINGS)
def baseline(
    config: ConfigFile = "",
    overrides: Overrides = (),
    resume: str = "",
    stages: Stages = "all",
    fresh: bool = False,
    keep_training: bool = False,
    runs_dir: str = RUNS_DIR,
) -> dict[str, Any] | State[Any] | None:
    """Train, evaluate and merge as a config says. Called again, the flow continues its run.

    Args:
        config: A config file, such as configs/quickstart.yaml.
        overrides: Changes to single keys of the config, each `key.path=value`; with `resume`, of its length and of
            operation alone.
        resume: Name of a run to continue, with the config that it was started with.
        stages: How far to go: up to this stage, with everything that it needs.
        fresh: Make a new run that takes nothing over from other runs, as a scheduled run should.
        keep_training: Where files that the config names have changed since the run was started, go on from its last
            checkpoint with them, instead of starting a new run beside it.
        runs_dir: Folder of the runs.

    Returns:
        Accuracies of the base and the trained model, if the run went as far as its report.
    """
    request = RunRequest(
        config=config,
        overrides=overrides,
        resume=resume,
        fresh=fresh,
        keep_training=keep_training,
        runs_dir=runs_dir,
    )
    return in_run(request, lambda run: carry_out(run, stages))


def _partial(stages: Stages, description: str) -> Flow[..., Any]:
    def part(
        config: ConfigFile = "",
        overrides: Overrides = (),
        resume: str = "",
        runs_dir: str = RUNS_DIR,
        push: str = "",
    ) -> dict[str, Any] | State[Any] | None:
        """Carry a run out up to one stage.

        Args:
            config: A config file, such as configs/quickstart.yaml.
            overrides: Changes to single keys of the config, each `key.path=value`.
            resume: Name of a run to continue, with the config that it was started with.
            runs_dir: Folder of the runs.
            push: Repository on the hub to upload the merged model to, `owner/name`.
        """
        request = RunRequest(config=config, overrides=overrides, resume=resume, runs_dir=runs_dir, push=push)
        # These stages measure the run as it was, and not with rewards that were edited since.
        return in_run(request, lambda run: carry_out(run, stages), is_frozen=stages in FROZEN)

    return flow(name=stages, description=description, flow_run_name=name_of_run, **ENDINGS)(part)


prepare_part = _partial("prepare", "Check everything and prepare model and data.")
train_part = _partial("train", "Train, after the stages that are needed for it.")
evaluate_part = _partial("evaluate", "Evaluate base and trained model, after the stages that are needed for it.")
merge_part = _partial("merge", "Write and check the merged model, after the stages that are needed for it.")
