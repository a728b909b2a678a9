"""Runs that cannot teach anything, from the command line. Each says why after two steps, wherever a person looks.

Others do not start: with a learning rate of 0, with images that no row shows (tests/tasks/planning/test_problems.py),
with an end of responses that cannot be sampled (tests/rl_core/planning/test_model_tokens.py)."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rl_core.records.metrics_log import NO_SIGNAL_EVENT, read
from tests.e2e.runs import REPOSITORY, run_arguments, sightline, the_run

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

SIZES = {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "num_key_value_heads": 1, "intermediate_size": 96}
CONSTANT_REWARD = """
def score(sample):
    return 1.0
"""


def sums(first: int = 0, *, added: int = 0) -> list[dict[str, str]]:
    """Sums of 16 pairs of numbers from `first` on, each with its result plus `added` as the answer."""
    numbers = range(first, first + 4)
    return [{"problem": f"{one} + {other}", "answer": f"{one + other + added}"} for one in numbers for other in numbers]


def written(path: Path, rows: Sequence[dict[str, object]]) -> dict[str, str]:
    """The section of a source that reads the rows."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"type": "local", "path": str(path)}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A run of two steps on sums, whose cold start teaches the form of an answer."""
    rows = written(tmp_path / "sums.jsonl", sums())
    held_out = written(tmp_path / "held_out.jsonl", sums(4)[:4])
    path = tmp_path / "sums.yaml"
    path.write_text(
        json.dumps(
            {
                "experiment": "sums",
                "data": {
                    "train": rows,
                    "validation": held_out,
                    "prompt_template": str(REPOSITORY / "configs/prompts/count.jinja"),
                    "max_prompt_length": 64,
                    "rollout_batch_size": 4,
                },
                "model": {"source": {"type": "tiny", "family": "qwen2_5", **SIZES}, "dtype": "float32"},
                "cold_start": {
                    "source": rows,
                    "target_template": "<answer>{{ answer }}</answer>",
                    "steps": 60,
                    "batch_size": 16,
                    "optim": {"lr": 5.0e-3},
                },
                "reward": {"function": "count", "workers": 1},
                "rollout": {"n": 2, "max_response_length": 12},
                "actor": {"global_batch_size": 4, "optim": {"lr": 1.0e-3}},
                "trainer": {"total_epochs": 1, "max_steps": 2, "val_freq": -1},
                "evaluation": {"modes": ["greedy"]},
            }
        )
    )
    return path


def other_answers(folder: Path) -> list[str]:
    """Answers of other questions, so that none is ever right."""
    return [f"data.train={json.dumps(written(folder / 'shuffled.jsonl', sums(added=50)))}"]


def one_reward(folder: Path) -> list[str]:
    (folder / "mine.py").write_text(CONSTANT_REWARD)
    return [f"reward.function={folder}/mine.py:score", "evaluation.accuracy_key=overall"]


@pytest.mark.parametrize(
    ("overrides", "cause"),
    [
        pytest.param(
            lambda folder: ["rollout.max_response_length=2"], "cut at rollout.max_response_length 2", id="cut"
        ),
        pytest.param(lambda folder: ["reward.function=math"], "the reward finds no answer", id="unreadable"),
        pytest.param(one_reward, "the reward is 1 for every response", id="constant reward"),
        pytest.param(other_answers, "whether the answers of the data are those of their questions", id="shuffled"),
    ],
)
def test_a_run_that_teaches_nothing_says_why(overrides, cause: str, config: Path, tmp_path: Path) -> None:
    done = sightline(*run_arguments(tmp_path, config, *overrides(tmp_path)), home=tmp_path, timeout=500)
    run = the_run(tmp_path / "runs")
    (event,) = [event for event in read(run.events) if event["kind"] == NO_SIGNAL_EVENT]
    assert event["step"] == 2
    assert cause in event["why"]
    assert "2 steps in a row taught nothing" in done.stdout + done.stderr
    assert cause in " ".join((done.stdout + done.stderr).split())
    assert "From step 1 on nothing was learned" in run.report.read_text()
