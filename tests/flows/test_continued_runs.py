"""A run that is mended or forked goes on from what it has, and nothing is lost; test_baseline.py lengthens one."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prefect import State

from flows.baseline import baseline
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from tasks.cache.amendments import read_amendments
from tests.results import hashes, is_whole

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect_server", "at_the_root"), pytest.mark.timeout(600)]

REWARD = """
def score(sample):
    return {{"overall": {right} * (sample.ground_truth_text in sample.response), "accuracy": 0.0}}
"""


@dataclass
class Place:
    """Where the runs of a test lie, with the reward file that their config names."""

    folder: Path

    @property
    def runs_dir(self) -> Path:
        return self.folder / "runs"

    @property
    def reward(self) -> Path:
        return self.folder / "own.py"

    def call(self, *overrides: str, **parameters: Any) -> State:
        always = [
            f"tracking.mlflow_uri=sqlite:///{self.folder / 'mlflow.db'}",
            "trainer.val_freq=-1",
            "evaluation.modes=[greedy]",
            f"reward.function={self.reward}:score",
        ]
        config = "" if "resume" in parameters else "tests/e2e/configs/small.yaml"
        given = overrides if "resume" in parameters else [*always, *overrides]
        return baseline(
            config=config, overrides=list(given), runs_dir=str(self.runs_dir), return_state=True, **parameters
        )

    def runs(self) -> list[RunDirectory]:
        return [RunDirectory(folder) for folder in sorted(self.runs_dir.iterdir()) if folder.is_dir()]


@pytest.fixture
def place(tmp_path: Path, empty_database: Path) -> Place:
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    made = Place(tmp_path)
    made.reward.write_text(REWARD.format(right=1.0))
    return made


def metrics(run: RunDirectory) -> list[dict[str, Any]]:
    return read(run.metrics)


def test_a_run_whose_reward_file_has_changed_stays_or_goes_on_as_it_is_asked(place: Place) -> None:
    assert place.call("trainer.max_steps=2", stages="train").is_completed()
    (run,) = place.runs()
    before = run.metrics.read_bytes()
    place.reward.write_text(REWARD.format(right=2.0))

    assert place.call("trainer.max_steps=3", keep_training=True).is_completed()
    assert place.runs() == [run]
    assert run.metrics.read_bytes().startswith(before) and len(metrics(run)) == 3
    (amendment,) = read_amendments(run)
    assert amendment.step == 2 and list(amendment.what) == [str(place.reward)]
    assert place.call("trainer.max_steps=3").is_completed() and place.runs() == [run], (
        "it is the run of these files now"
    )

    finished = hashes(run.root, ("metrics.jsonl", "merged/*", "report.html", "evaluations/**/*", "stages/*"))
    place.reward.write_text(REWARD.format(right=3.0))
    assert place.call("trainer.max_steps=3", stages="prepare").is_completed()
    first, second = place.runs()
    assert (first, second.name) == (run, f"{run.name}-2")
    assert hashes(run.root, ("metrics.jsonl", "merged/*", "report.html", "evaluations/**/*", "stages/*")) == finished
    (started,) = [event for event in read(second.events) if event["kind"] == "new-run"]
    assert started["changed"] == [str(place.reward)] and started["run"] == run.name
    refused = place.call("trainer.max_steps=3", keep_training=True)
    assert refused.is_completed() and len(place.runs()) == 2, "the newest run of the recipe has these files"


def test_a_fork_goes_on_from_a_checkpoint_and_the_run_that_it_is_from_stays(place: Place) -> None:
    assert place.call("trainer.max_steps=4", "trainer.save_limit=3", stages="train").is_completed()
    (run,) = place.runs()
    before = hashes(run.root, ("**/*",))
    forked = ["trainer.max_steps=4", f"forked_from={{run: {run.name}, step: 2}}", "actor.optim.lr=1e-5"]
    assert place.call(*forked).is_completed()
    (fork,) = [found for found in place.runs() if found != run]
    assert {name: one for name, one in hashes(run.root, ("**/*",)).items() if name in before} == before
    assert metrics(fork)[:2] == metrics(run)[:2] and metrics(fork)[2:] != metrics(run)[2:]
    assert [line["step"] for line in metrics(fork)] == [1, 2, 3, 4]
    (amendment,) = read_amendments(fork)
    assert (amendment.forked_from, amendment.step, list(amendment.what)) == (run.name, 2, ["actor.optim.lr"])
    shutil.rmtree(run.root)
    assert is_whole(fork) and place.call(*forked).is_completed(), "it does not need the other run any more"
