"""The flow of a set of baselines, as Prefect sees it. Finished runs stand for trained ones: none is repeated."""

import json
from pathlib import Path
from uuid import UUID

import pytest
from prefect import State
from prefect.client.orchestration import get_client
from prefect.states import Crashed, Running

from flows.reproduce import Regressed, explain_set, reproduce_baselines
from flows.reproducing import BaselineSet
from rl_core.config.loading import dump_config, load_config
from rl_core.evaluation.result import write_evaluation
from rl_core.run_directory import RunDirectory
from tasks.cache.stages import run_name, stage_digests
from tests.flows.artifacts import artifacts_of, task_runs_of
from tests.rl_core.evaluation.builders import make_items
from tests.servers import wait_until
from tests.tasks.finished_run import finish_stage

pytestmark = pytest.mark.usefixtures("prefect_server", "at_the_root")

BASELINE = "tests/e2e/configs/baseline.yaml"


def finished(runs_dir: Path, right: int, *overrides: str, tag: str | None = None, day: int = 1) -> RunDirectory:
    """A run of the baseline with so many of 40 answers right; nothing of it was trained."""
    config = load_config(Path(BASELINE), ["tracking.mlflow_uri=null", *overrides])
    run = RunDirectory(runs_dir / run_name(config, tag=tag))
    run.root.mkdir(parents=True)
    run.config.write_text(dump_config(config))
    digests = stage_digests(config)
    for evaluated, count in (("base", 5), ("trained", right)):
        write_evaluation(run.evaluation(evaluated), {"greedy": make_items("+" * count + "-" * (40 - count))})
        finish_stage(
            run, f"evaluate-{evaluated}", {}, run.evaluation(evaluated), digest=digests[f"evaluate-{evaluated}"]
        )
    finish_stage(run, "report", {}, digest=digests["report"], finished_at=f"2026-01-{day:02d}T00:00:00+00:00")
    return run


def reproduced(runs_dir: Path, *overrides: str, **parameters: object) -> State:
    settings = {"baselines": [BASELINE], "overrides": ["tracking.mlflow_uri=null", *overrides]}
    return reproduce_baselines(**{**settings, **parameters}, runs_dir=str(runs_dir), return_state=True)


def task_states(state: State) -> dict[str, str]:
    return {run.name: run.state_name for run in task_runs_of(state.state_details.flow_run_id)}


def expect_task_states(state: State, expected: dict[str, str]) -> None:
    """Prefect's server hears of task runs by events, which may come after the flow run has ended."""
    wait_until(lambda: task_states(state) == expected, f"the task runs are {expected}", 60.0)


def pages_of(flow_run_id: UUID) -> dict[str, str]:
    return {artifact.key: artifact.data for artifact in artifacts_of(flow_run_id)}


def page_of(state: State) -> str:
    return pages_of(state.state_details.flow_run_id)["reproduction"]


def test_a_drop_fails_the_flow_run_and_what_is_finished_is_not_repeated(tmp_path: Path) -> None:
    finished(tmp_path, 30, "seed=1")
    good = reproduced(tmp_path, "seed=1")
    assert good.is_completed(), good
    expect_task_states(good, {"reproduce baseline": "Cached"})
    assert good.result()["baselines"][0]["status"] == "good"
    assert "# the baseline is good" in page_of(good)

    worse = finished(tmp_path, 15, "seed=2", day=2)
    bad = reproduced(tmp_path, "seed=2")
    assert bad.is_failed() and isinstance(bad.result(raise_on_failure=False), Regressed)
    assert bad.message == "1 of 1 baselines need a look: baseline regressed"
    expect_task_states(bad, {"reproduce baseline": "Cached"})
    assert "| baseline | regressed | 37.5 % |" in page_of(bad)
    assert json.loads(worse.reproduction.read_text())["status"] == "regressed"
    (folder,) = [
        path for path in (tmp_path / "reproductions").iterdir() if "regressed" in (path / "summary.json").read_text()
    ]
    assert (folder / "summary.html").is_file()

    again = reproduced(tmp_path, baselines=["unused"], resume=folder.name)
    assert again.is_failed() and again.message == bad.message


def test_a_baseline_with_several_seeds_is_one_member_with_a_task_for_each(tmp_path: Path) -> None:
    for seed, right in ((1, 30), (2, 20), (3, 34)):
        finished(tmp_path, right, f"seed={seed}")
    state = reproduced(tmp_path, seeds="1-3")
    assert state.is_completed(), state
    expect_task_states(state, {f"reproduce baseline seed {seed}": "Cached" for seed in (1, 2, 3)})
    (result,) = state.result()["baselines"]
    assert result["reproduction"]["accuracy_by_seed"] == [0.75, 0.5, 0.85]
    assert "| baseline | good | 70.0 % | 25.2 to 100.0 % |" in page_of(state)
    (folder,) = (tmp_path / "reproductions").iterdir()
    assert folder.name.endswith("-seeds-1-3") and (folder / "summary.html").is_file()
    assert "mean 70.0 %, between seeds 50.0 to 85.0 %" in (folder / "seeds-baseline.html").read_text()

    again = reproduced(tmp_path, seeds="7", resume=folder.name)
    assert again.is_completed() and again.result()["baselines"] == [result]


@pytest.mark.parametrize(
    ("baselines", "overrides", "named"),
    [
        (["qwen2_5_vl_3b_geo3k_gropo", BASELINE], [], "did you mean qwen2_5_vl_3b_geo3k_grpo?"),
        ([BASELINE, "configs/quickstart.yaml"], [], "quickstart reproduces nothing"),
        ([BASELINE], ["trainer.total_epochs=3"], "baseline: published.total_steps: the run would take 9"),
        ([BASELINE], ["no_such.key=1"], "no_such"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    baselines: list[str], overrides: list[str], named: str, tmp_path: Path
) -> None:
    state = reproduced(tmp_path, *overrides, baselines=baselines)
    assert state.is_failed() and named in state.message, state.message
    assert task_states(state) == {}
    assert not list(tmp_path.iterdir())
    assert "sightline" not in pages_of(state.state_details.flow_run_id)["how-to-continue"].partition("```")[2]


@pytest.mark.parametrize("is_saved", [True, False])
def test_a_set_whose_process_was_killed_shows_the_command_that_continues_it(is_saved: bool, tmp_path: Path) -> None:
    given = {"baselines": [BASELINE], "runs_dir": str(tmp_path)}
    baseline_set = BaselineSet(**given)
    if is_saved:
        baseline_set.save()
    with get_client(sync_client=True) as client:
        flow_run = client.create_flow_run(reproduce_baselines, parameters=given, state=Running())
    explain_set(reproduce_baselines, flow_run, Crashed(message="exit status -9"))
    page = pages_of(flow_run.id)["how-to-continue"]
    assert "exit status -9" in page and (baseline_set.command in page) == is_saved
