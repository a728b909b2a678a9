"""A run in MLflow (a parent, and a nested run for each stage), and its steps in the other trackers. Everything that
they show is read from the run's folder.

Every finished stage is shown, whether it was just made, recognised or taken over. What a nested run already shows is
not sent again. So an outage, a deleted database and a resumed run need no special treatment.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

from rl_core.config.run import RunConfig
from rl_core.data.manifest import DataManifest
from rl_core.progress import LogEvent
from rl_core.redaction import redact_tree
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import StageManifest
from tasks.tracking.run_tags import code_tags, run_tags

if TYPE_CHECKING:
    from rl_core.tracking.follower import TrackerFollower
    from rl_core.tracking.mlflow_runs import MlflowPipeline, MlflowRun
    from rl_core.tracking.tracker import Tracker


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

    @contextmanager
    def pipeline_running(self, flow_run_id: str | None) -> Iterator[None]:
        """Show the parent run, with the config as parameters, as running. The end of the block closes the trackers."""
        try:
            with self._parent_running(flow_run_id):
                yield
        finally:
            for follower in self._followers or ():
                follower.finish()

    @contextmanager
    def _parent_running(self, flow_run_id: str | None) -> Iterator[None]:
        if self._pipeline is None:
            yield
            return
        from rl_core.tracking.tracker import tolerated_outage

        parent = self._pipeline.parent
        with self._pipeline.running(parent, log_event=self._log_event):
            with tolerated_outage("parameters", self._log_event):
                parent.log_params(redact_tree(self._config.model_dump(mode="json", exclude={"tracking", "storage"})))
                parent.set_tags({"prefect.flow_run_id": flow_run_id or "none"})
            yield

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

    @contextmanager
    def stage_running(self, stage: str) -> Iterator[None]:
        """Show the stage's nested run as running during the block."""
        if self._pipeline is None:
            yield
            return
        with self._pipeline.running(self._pipeline.stage(stage), log_event=self._log_event):
            yield

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

    def show_headline(self, metrics: Mapping[str, float]) -> None:
        """Log the metrics by which pipelines are compared on the parent run, unless it has them."""

        def show(pipeline: "MlflowPipeline") -> None:
            shown = pipeline.parent.latest_metric
            pipeline.parent.log_metrics({name: value for name, value in metrics.items() if shown(name) != value})

        self.show_pipeline("the pipeline's figures", show)

    @contextmanager
    def following(self, stage: str) -> Iterator[Callable[[], None]]:
        """Yields a function that sends the steps of metrics.jsonl that the trackers lack; the end of the block sends
        the rest. In MLflow the nested run of the stage shows them."""
        followers = self._follow(stage)

        def follow() -> None:
            for follower in followers:
                follower.follow()

        try:
            yield follow
        finally:
            for follower in followers:
                follower.catch_up()

    def _follow(self, stage: str) -> "list[TrackerFollower]":
        """Open the trackers, which stay open from the first epoch to the end of the pipeline."""
        if self._followers is None:
            from rl_core.tracking.follower import TrackerFollower
            from rl_core.tracking.generations import generation_tables

            self._followers = [
                TrackerFollower(
                    tracker,
                    self._run.metrics,
                    generations=lambda step: generation_tables(self._run, step, self._config.tracking),
                    log_event=self._log_event,
                )
                for tracker in self._trackers(stage)
            ]
        return self._followers

    def _trackers(self, stage: str) -> "Iterator[Tracker]":
        from rl_core.tracking.follower import open_trackers

        if self._pipeline is not None:
            from rl_core.tracking.mlflow_tracker import MlflowTracker

            yield MlflowTracker(self._pipeline.stage(stage), timings=self._run.timings)
        yield from open_trackers(self._config, self._run)


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
