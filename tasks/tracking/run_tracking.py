"""A run in MLflow (a parent, and a nested run for each stage), and its steps in the other trackers. Everything that
they show is read from the run's folder.

Every finished stage is shown, whether it was just made, recognised or taken over. What a nested run already shows is
not sent again. So an outage, a deleted database and a resumed run need no special treatment.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, Literal

from rl_core.config.model import ModelConfig, TinyModel
from rl_core.config.run import RunConfig
from rl_core.data.manifest import MANIFEST_FILE, DataManifest
from rl_core.progress import LogEvent
from rl_core.redaction import redact_tree
from rl_core.run_directory import RunDirectory
from tasks.cache.kept_files import files_of_run
from tasks.cache.manifests import StageManifest
from tasks.cache.software import code_version
from tasks.cache.stages import config_digest, experiment_digest, protocol_digest
from tasks.results.run_facts import algorithm_name

if TYPE_CHECKING:
    from rl_core.tracking.follower import TrackerFollower
    from rl_core.tracking.mlflow_runs import MlflowPipeline, MlflowRun


Show = Callable[["MlflowRun", StageManifest, RunDirectory], None]
"""Shows a finished stage in its nested run; reads only the run's folder."""

ITEMS_TABLE = "items.json"
"""Artifact of an evaluation's run in MLflow: every graded response."""

_SHOWN_TAG = "sightline.shown"


class PipelineTracking:
    """A run in the trackers; it is not in MLflow where `tracking.mlflow_uri` is null."""

    def __init__(self, config: RunConfig, run: RunDirectory, *, log_event: LogEvent) -> None:
        self._config = config
        self._run = run
        self._log_event = log_event
        self._pipeline = _open_pipeline(config, run)
        self._followers: list[TrackerFollower] | None = None
        self._resume = ""

    @contextmanager
    def pipeline_running(self, flow_run_id: str | None, *, resume: str) -> Iterator[None]:
        """Show the parent run, with the config as parameters, as running; its description says how to continue it, by
        the command `resume`. The end of the block closes the trackers."""
        self._resume = resume
        with ExitStack() as stack:
            stack.callback(self._close)
            if self._pipeline is not None:
                from rl_core.tracking.tracker import tolerated_outage

                parent = self._pipeline.parent
                stack.enter_context(self._pipeline.running(parent, log_event=self._log_event))
                with tolerated_outage("parameters", self._log_event):
                    shown = self._config.model_dump(mode="json", exclude={"tracking", "storage", "paths_from"})
                    parent.log_params(redact_tree(shown))
                    parent.set_tags({"prefect.flow_run_id": flow_run_id or "none"})
                if not self._run.report.is_file():  # else the report's stage describes the run
                    self._describe("It is not finished.")
            yield

    def conclude(self, sentences: Sequence[str]) -> None:
        """Describe the parent run of a finished pipeline: its verdict, what to look at, the report."""
        self._describe(*sentences, f"The report: `{self._run.report.absolute()}`")

    def _describe(self, *sentences: str) -> None:
        lines = [*sentences, f"Its folder: `{self._run.root.absolute()}`", f"To continue it: `{self._resume}`"]
        self.show_pipeline("the description", lambda pipeline: pipeline.parent.describe("\n\n".join(lines)))

    def _close(self) -> None:
        for follower in self._followers or ():
            follower.finish()

    def addresses(self) -> dict[str, str]:
        """[what is shown] -> address in MLflow. Empty where MLflow is off or does not answer."""
        if self._pipeline is None:
            return {}
        from rl_core.tracking.tracker import TrackerUnavailable, report_outage

        try:
            parent = self._pipeline.parent
            return {"this run": parent.address, "the experiment's runs": parent.experiment_address}
        except TrackerUnavailable as outage:
            report_outage("the links to MLflow", outage, self._log_event)
            return {}

    def stage_running(self, stage: str) -> AbstractContextManager[object]:
        """Shows the stage's nested run as running during the block."""
        if self._pipeline is None:
            return nullcontext()
        return self._pipeline.running(self._pipeline.stage(stage), log_event=self._log_event)

    def show(self, stage: str, manifest: StageManifest, show: Show) -> None:
        """Show a finished stage in its nested run, unless the run's tag says that it is shown."""

        def send(pipeline: "MlflowPipeline") -> None:
            run, shown_tag = pipeline.stage(stage), f"{_SHOWN_TAG}.{manifest.stage}"
            if run.tag(shown_tag) != manifest.digest:
                run.set_tags({"sightline.reused_from": manifest.reused_from or "", "sightline.digest": manifest.digest})
                run.set_tags(run_tags(self._config, self._run))
                show(run, manifest, self._run)
                run.set_tags({shown_tag: manifest.digest})
                run.set_status("FINISHED")

        self.show_pipeline(f"stage {manifest.stage}", send)

    def show_pipeline(self, what: str, show: "Callable[[MlflowPipeline], None]") -> None:
        """Show what concerns several stages; an outage is a warning. This is called whenever the pipeline runs, so
        `show` must give the same result when it is called again."""
        if self._pipeline is None:
            return
        from rl_core.tracking.tracker import tolerated_outage

        with tolerated_outage(what, self._log_event):
            show(self._pipeline)

    @contextmanager
    def following(self) -> Iterator[Callable[[], None]]:
        """Yields a function that sends the steps of metrics.jsonl that the trackers lack; the end of the block sends
        the rest. In MLflow the nested run of the training shows them."""
        followers = self._follow()

        def follow() -> None:
            for follower in followers:
                follower.follow()

        try:
            yield follow
        finally:
            for follower in followers:
                follower.catch_up()

    def _follow(self) -> "list[TrackerFollower]":
        """Open the trackers, which stay open from the first epoch to the end of the pipeline."""
        if self._followers is None:
            from rl_core.tracking.follower import TrackerFollower, open_trackers
            from rl_core.tracking.generations import generation_tables

            trackers = [*open_trackers(self._config, self._run)]
            if self._pipeline is not None:
                from rl_core.tracking.mlflow_tracker import LearningCurves, MlflowTracker

                curves = LearningCurves(self._pipeline.parent, learning_curves(self._config))
                trackers[:0] = [MlflowTracker(self._pipeline.stage("train"), timings=self._run.timings), curves]
            self._followers = [
                TrackerFollower(
                    tracker,
                    self._run.metrics,
                    generations=lambda step: generation_tables(self._run, step, self._config.tracking),
                    log_event=self._log_event,
                )
                for tracker in trackers
            ]
        return self._followers


def _open_pipeline(config: RunConfig, run: RunDirectory) -> "MlflowPipeline | None":
    address = config.tracking.mlflow_address
    if address is None:
        return None
    # Imported here: MLflow takes two seconds to import, and a run without it need not wait.
    from rl_core.tracking.mlflow_runs import MlflowPipeline

    return MlflowPipeline(
        address,
        experiment=config.experiment,
        run_name=run.name,
        tags=lambda: run_tags(config, run) | code_tags(),
    )


def learning_curves(config: RunConfig) -> dict[str, Sequence[str]]:
    """[curve of a pipeline in MLflow] -> metrics, the first that a run has. MLflow's pages sort charts by
    name, capitals first."""
    return {
        "Learning/1 reward": ("reward/overall",),
        "Learning/2 accuracy held-out": ("val/accuracy",),
        "Learning/3 accuracy in training": (f"reward/{config.evaluation.accuracy_key}",),
        "Learning/4 response length": ("response_length/mean",),
        "Learning/5 KL": ("kl/reference", "actor/kl_loss", "actor/approx_kl"),
        "Learning/6 groups without a signal": ("reward/zero_std_groups",),
    }


Split = Literal["train", "validation"]

_CONTEXTS: Final = {"train": "training", "validation": "evaluation"}


def log_split(mlflow_run: "MlflowRun", run: RunDirectory, split: Split) -> None:
    """Log a split of the run's data as an input, with the fingerprint of the whole preparation as its digest. Raises
    TrackerUnavailable where MLflow does not answer."""
    manifest = DataManifest.read(run.data)
    summary = manifest.splits[split]
    mlflow_run.log_dataset(
        name=f"{split} ({summary.source})",
        digest=manifest.fingerprint,
        source=run.data,
        context=_CONTEXTS[split],
        rows=summary.rows,
    )


def page_run(address: str, experiment: str, *, name: str, run: str, stage: str) -> "MlflowRun":
    """The run in MLflow that shows a page over several runs; `run` and `stage` identify it."""
    from rl_core.tracking.mlflow_access import MlflowAccess
    from rl_core.tracking.mlflow_runs import RUN_TAG, STAGE_TAG, MlflowRun

    return MlflowRun(MlflowAccess(address), experiment=experiment, name=name, tags={RUN_TAG: run, STAGE_TAG: stage})


def run_tags(config: RunConfig, run: RunDirectory) -> dict[str, str]:
    """The tags that describe a run.

    `config` is the digest in the run's name; `recipe` leaves the seed out, so that runs with one recipe are repetitions
    of one experiment; runs with one `protocol` were measured in the same way; runs with one `dataset` saw the same rows
    (this tag exists from the preparation on).
    """
    tags = {
        "model": model_name(config.model),
        "algorithm": algorithm_name(config.algorithm),
        "config": config_digest(config),
        "recipe": experiment_digest(config),
        "seed": f"{config.seed}",
        "protocol": f"held-out@{protocol_digest(config, files_of_run(config, run, is_frozen=True))}",
        "sightline.experiment": config.experiment,
        "sightline.folder": str(run.root.absolute()),
    }
    if config.forked_from is not None:
        tags["forked_from"] = f"{config.forked_from.run}, step {config.forked_from.step}"
    if (run.data / MANIFEST_FILE).is_file():
        tags["dataset"] = DataManifest.read(run.data).fingerprint
    return tags


def code_tags() -> dict[str, str]:
    """The version of the code that this process runs; the commit has the name that MLflow's pages use."""
    version = code_version()
    commit = {"mlflow.source.git.commit": version.commit} if version.commit else {}
    return {"code": f"{version}", "mlflow.source.name": "sightline", **commit}


def model_name(model: ModelConfig) -> str:
    """The last part of a folder or hub name; for a tiny model, its family."""
    source = model.source
    if isinstance(source, TinyModel):
        return f"tiny-{source.family}"
    return source.path.rstrip("/").rpartition("/")[2]
