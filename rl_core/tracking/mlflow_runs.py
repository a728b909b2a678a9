"""One MLflow run for each pipeline, and a nested run for each stage, which are found again by their tags.

MLflow's "active run" belongs to a thread and is lost between tasks: run ids are explicit. Every method raises
TrackerUnavailable when MLflow does not answer, and may be called again with the same values, so that a run that is
continued shows everything once.
"""

import hashlib
import json
import logging
import posixpath
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.utils.mlflow_tags import MLFLOW_RUN_NOTE
from PIL import Image

from rl_core.progress import LogEvent
from rl_core.tracking.mlflow_access import MlflowAccess, Result
from rl_core.tracking.mlflow_pages import SHARED_VIEW, page_of_experiment, page_of_run
from rl_core.tracking.tracker import RefusedByTracker, Table, TrackerUnavailable, tolerated_outage

_logger = logging.getLogger(__name__)

RunStatus = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
Item = TypeVar("Item")
Action = Callable[[MlflowClient, str], Result]

RUN_TAG = "sightline.run"
STAGE_TAG = "sightline.stage"
_COLUMNS = [
    "metrics.`accuracy/base`",
    "metrics.`accuracy/trained`",
    "params.`seed`",
    "params.`actor.optim.lr`",
    "tags.`algorithm`",
    "tags.`model`",
]
PIPELINE = "pipeline"
"""Value of STAGE_TAG for the parent run."""
SHOWN_AS_TRAINING = {
    "mlflow.experimentKind": "custom_model_development",
    f"mlflow.sharedViewState.{SHARED_VIEW}": json.dumps({"selectedColumns": _COLUMNS}),
}
"""Tags of an experiment: MLflow's pages open on its runs and curves, and not on the traces of an agent, and a link to
them shows the columns by which runs are told apart."""

# MLflow's own limits (mlflow/utils/validation.py).
MAX_METRICS_A_BATCH = 1000
MAX_PARAMS_A_BATCH = 100
MAX_PARAM_LENGTH = 6000
MAX_TAG_LENGTH = 8000
MAX_KEY_LENGTH = 250
MAX_DIGEST_LENGTH = 36

_MARK_LENGTH = 6
_MARKED = re.compile(rf"-[0-9a-f]{{{_MARK_LENGTH}}}\Z")


class MlflowRun:
    """One MLflow run, which is looked up by its `tags` or created when it is first needed, as is its experiment."""

    def __init__(
        self,
        access: MlflowAccess,
        *,
        experiment: str,
        name: str,
        tags: Mapping[str, str],
        parent: "MlflowRun | None" = None,
    ) -> None:
        self._access = access
        self._experiment = experiment
        self._name = name
        self._tags = dict(tags)
        self._parent = parent
        self._run_id: str | None = None

    @property
    def run_id(self) -> str:
        """MLflow's id of the run."""
        if self._run_id is None:
            parent = {} if self._parent is None else {"mlflow.parentRunId": self._parent.run_id}
            self._run_id = self._access.call(lambda client: self._find_or_create(client, parent))
        return self._run_id

    @property
    def address(self) -> str:
        """Address of the run for a browser."""
        run_id = self._call(lambda client, run_id: run_id)
        return page_of_run(self._access.uri, self._own_experiment(), run_id)

    @property
    def experiment_address(self) -> str:
        """Address of the run's experiment for a browser."""
        return page_of_experiment(self._access.uri, self._own_experiment())

    def set_status(self, status: RunStatus) -> None:
        """Set the status. RUNNING also reopens a run that had ended."""
        if status == "RUNNING":
            self._call(lambda client, run_id: client.update_run(run_id, status=status))
        else:
            self._call(lambda client, run_id: client.set_terminated(run_id, status=status))

    def log_params(self, config: Mapping[str, Any]) -> None:
        """Log a nested configuration as parameters with dotted names. MLflow refuses another value of a parameter that
        it has; a warning names those that it refuses, and all others are logged."""
        params = [Param(_key(name), _cut(text, MAX_PARAM_LENGTH)) for name, text in flatten(config).items()]
        refused = [param for batch in _batches(params, MAX_PARAMS_A_BATCH) for param in self._refused(batch)]
        if refused:
            names = ", ".join(param.key for param in refused)
            _logger.warning("MLflow refuses another value of the parameter(s) %s, and keeps the first", names)

    def describe(self, text: str) -> None:
        """Set the description, in Markdown, that MLflow's pages show at the head of the run."""
        self.set_tags({MLFLOW_RUN_NOTE: text})

    def set_tags(self, tags: Mapping[str, object]) -> None:
        """Set tags, which may change."""
        entities = [RunTag(_key(name), _cut(str(value), MAX_TAG_LENGTH)) for name, value in tags.items()]
        for batch in _batches(entities, MAX_PARAMS_A_BATCH):
            self._log_batch(tags=batch)

    def log_metrics(self, metrics: Mapping[str, float], *, step: int = 0) -> None:
        """Log the metrics of a step. Log each step once: MLflow would keep a second value beside the first."""
        now = int(time.time() * 1000)
        entities = [Metric(_key(name), float(value), now, step) for name, value in metrics.items()]
        for batch in _batches(entities, MAX_METRICS_A_BATCH):
            self._log_batch(metrics=batch)

    def latest_metric(self, name: str) -> float | None:
        """The value of a metric at its highest step."""
        value = self._call(lambda client, run_id: client.get_run(run_id).data.metrics.get(_key(name)))
        return None if value is None else float(value)

    def tag(self, name: str) -> str | None:
        """The value of a tag."""
        value = self._call(lambda client, run_id: client.get_run(run_id).data.tags.get(_key(name)))
        return None if value is None else str(value)

    def log_dataset(self, *, name: str, digest: str, source: Path, context: str, rows: int) -> None:
        """Log the prepared data in the folder `source` as an input of the run, used for "training" or "evaluation"."""
        dataset = Dataset(
            name=name,
            digest=digest[:MAX_DIGEST_LENGTH],
            source_type="local",
            source=json.dumps({"uri": str(source)}),
            profile=json.dumps({"num_rows": rows}),
        )
        entry = DatasetInput(dataset, tags=[InputTag("mlflow.data.context", context)])
        self._call(lambda client, run_id: client.log_inputs(run_id, datasets=[entry]))

    def log_table(self, file: str, columns: Table) -> None:
        """Log a table that MLflow's pages show, as the artifact `file`, which ends in `.json`. It replaces an earlier
        one, to which MLflow's own `log_table` would append. Of more than about a hundred the pages show the newest."""
        table = {"columns": list(columns), "data": [list(row) for row in zip(*columns.values(), strict=True)]}

        def log(client: MlflowClient, run_id: str) -> None:
            client.log_dict(run_id, table, file)
            tables = json.loads(client.get_run(run_id).data.tags.get("mlflow.loggedArtifacts", "[]"))
            entry = {"path": file, "type": "table"}
            if entry not in tables:
                client.set_tag(run_id, "mlflow.loggedArtifacts", _as_tag([*tables, entry]))

        self._call(log)

    def log_image(self, file: str, image: Image.Image) -> None:
        """Log an image as the artifact `file`."""
        self._call(lambda client, run_id: client.log_image(run_id, image, artifact_file=file))

    def log_text(self, file: str, text: str) -> None:
        """Log a text as the artifact `file`."""
        self._call(lambda client, run_id: client.log_text(run_id, text, file))

    def log_file(self, path: Path) -> None:
        """Log a copy of a file under its own name."""
        self._call(lambda client, run_id: client.log_artifact(run_id, str(path)))

    def show_page(
        self, page: Path, *, tags: Mapping[str, str], metrics: Mapping[str, float], status: RunStatus = "FINISHED"
    ) -> None:
        """Show a page, with its figures in the file beside it that ends in `.json`, its tags and its metrics."""
        self.set_status("RUNNING")
        self.set_tags(tags)
        self.log_metrics({name: value for name, value in metrics.items() if self.latest_metric(name) != value})
        self.log_file(page)
        self.log_file(page.with_suffix(".json"))
        self.set_status(status)

    def _refused(self, params: Sequence[Param]) -> list[Param]:
        """Log the parameters that MLflow takes, and return the others: because of one, it refuses a whole batch."""
        try:
            self._log_batch(params=params)
        except RefusedByTracker:
            half = len(params) // 2
            return [*self._refused(params[:half]), *self._refused(params[half:])] if half else [*params]
        return []

    def _log_batch(self, **entities: Sequence[Metric | Param | RunTag]) -> None:
        self._call(lambda client, run_id: client.log_batch(run_id, **entities))

    def _call(self, action: Action[Result]) -> Result:
        try:
            run_id = self.run_id
            return self._access.call(lambda client: action(client, run_id))
        except TrackerUnavailable:
            self._run_id = None  # it may be another database when it answers again
            raise

    def _own_experiment(self) -> str:
        return self._call(lambda client, run_id: str(client.get_run(run_id).info.experiment_id))

    def _find_or_create(self, client: MlflowClient, parent: Mapping[str, str]) -> str:
        experiment_id = self._experiment_id(client)
        wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in self._tags.items())
        found = client.search_runs([experiment_id], wanted, max_results=1, order_by=["attributes.start_time ASC"])
        if found:
            return str(found[0].info.run_id)
        run = client.create_run(experiment_id, tags={**self._tags, **parent}, run_name=self._name)
        return str(run.info.run_id)

    def _experiment_id(self, client: MlflowClient) -> str:
        experiment = client.get_experiment_by_name(self._experiment)
        if experiment is not None:
            for name, value in SHOWN_AS_TRAINING.items():
                if experiment.tags.get(name) != value:
                    client.set_experiment_tag(experiment.experiment_id, name, value)
            return str(experiment.experiment_id)
        location = self._access.artifact_location(self._experiment)
        return str(client.create_experiment(self._experiment, artifact_location=location, tags=SHOWN_AS_TRAINING))


class MlflowPipeline:
    """The MLflow runs of the pipeline `run_name`: a parent, and a nested run for each stage. Each of them gets `tags`,
    since MLflow's search sees only a run's own."""

    def __init__(
        self, uri: str, *, experiment: str, run_name: str, tags: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        self.access = MlflowAccess(uri)
        self._experiment = experiment
        self._run_name = run_name
        self._tags = tags
        self.parent = self._run(PIPELINE, name=run_name)

    def stage(self, stage: str) -> MlflowRun:
        """The nested run of a stage."""
        return self._run(stage, name=f"{self._run_name} {stage.replace('-', ' ')}", parent=self.parent)

    @contextmanager
    def running(self, run: MlflowRun, *, log_event: LogEvent | None = None) -> Iterator[MlflowRun]:
        """Show `run` as running during the block, and after it as finished, failed, or killed (by a
        KeyboardInterrupt)."""
        self._show(run, "RUNNING", log_event)
        status: RunStatus = "FAILED"
        try:
            yield run
            status = "FINISHED"
        except KeyboardInterrupt:
            status = "KILLED"
            raise
        finally:
            self._show(run, status, log_event)

    def _show(self, run: MlflowRun, status: RunStatus, log_event: LogEvent | None) -> None:
        with tolerated_outage(f"status {status} of {self._run_name}", log_event):
            run.set_status(status)
            run.set_tags(self._tags())

    def _run(self, stage: str, *, name: str, parent: MlflowRun | None = None) -> MlflowRun:
        tags = {RUN_TAG: self._run_name, STAGE_TAG: stage}
        return MlflowRun(self.access, experiment=self._experiment, name=name, tags=tags, parent=parent)


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """[dotted name] -> text of each value of nested mappings. Strings are unchanged, other values become JSON."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value if isinstance(value, str) else json.dumps(value)
    return flat


def _key(name: str) -> str:
    """A name that MLflow accepts: the names of reward components and data sources are free. One that has to be changed
    ends with a mark of its own, and so does one that looks as if it had been, so that no two names become one."""
    kept = posixpath.normpath(re.sub(r"[^\w\-./ :]", "_", name)).lstrip("./")
    if name and kept == name and len(name) <= MAX_KEY_LENGTH and not _MARKED.search(name):
        return name
    mark = f"-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:_MARK_LENGTH]}"
    return kept[: MAX_KEY_LENGTH - len(mark)] + mark


def _as_tag(entries: Sequence[Mapping[str, str]]) -> str:
    """As many of the last entries of a list as fit into a tag, as JSON."""
    text = json.dumps(entries)
    return text if len(text) <= MAX_TAG_LENGTH else _as_tag(entries[1:])


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))
