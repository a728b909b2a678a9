"""Parts of the flow `baseline`, each of which ends at one stage and first carries out the stages that it needs."""

from typing import Any

from prefect import Flow, State, flow

from flows.parameters import Overrides
from flows.pipeline import Stages, carry_out
from flows.process.failed_flows import ENDINGS
from flows.process.open_run import in_run, name_of_run
from flows.request import RunRequest
from rl_core.run_directory import RUNS_DIR

PartialFlow = Flow[..., Any]


def _partial(stages: Stages, description: str) -> PartialFlow:
    def part(
        config: str = "",
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
        return in_run(request, lambda run: carry_out(run, stages), is_frozen=stages in ("evaluate", "merge"))

    decorate = flow(
        name=stages,
        description=description,
        flow_run_name=name_of_run,
        **ENDINGS,
    )
    return decorate(part)


prepare_part = _partial("prepare", "Check everything and prepare model and data.")
train_part = _partial("train", "Train, after the stages that are needed for it.")
evaluate_part = _partial("evaluate", "Evaluate base and trained model, after the stages that are needed for it.")
merge_part = _partial("merge", "Write and check the merged model, after the stages that are needed for it.")
