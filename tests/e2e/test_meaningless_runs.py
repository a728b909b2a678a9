"""Eight runs that cannot teach anything, from the command line. Each says why, wherever a person looks: before the
first step or after two; or it does not start."""

import base64
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from rl_core.records.metrics_log import DOUBT_EVENT, NO_SIGNAL_EVENT, read
from tests.e2e.runs import REPOSITORY, run_arguments, sightline, the_run
from tests.rl_core.data.samples import png_bytes

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


def hidden_options(folder: Path) -> list[str]:
    """Answers that are letters of options which no prompt shows."""

    def questions(first: int) -> list[dict[str, object]]:
        return [
            {"problem": f"Which one is {row['problem']}?", "answer": "B", "choices": ["none", "this", f"{number}"]}
            for number, row in enumerate(sums(first))
        ]

    splits = {"train": questions(0), "validation": questions(4)[:4]}
    return [
        "reward.function=choice",
        *(f"data.{key}={json.dumps(written(folder / f'{key}.jsonl', split))}" for key, split in splits.items()),
    ]


def lost_pictures(folder: Path) -> list[str]:
    """Images in a column that no key names."""
    packed = base64.b64encode(png_bytes()).decode()
    rows = [row | {"picture": f"data:image/png;base64,{packed}"} for row in sums()]
    return [f"data.train={json.dumps(written(folder / 'pictured.jsonl', rows))}"]


@pytest.mark.parametrize(
    ("overrides", "cause"),
    [
        pytest.param(
            hidden_options, "choose among options, and the prompts of 8 of the first 8 rows", id="options hidden"
        ),
        pytest.param(lost_pictures, "by the name a column with images", id="pictures lost"),
    ],
)
def test_a_run_whose_prompts_lack_what_the_answers_need_says_so(
    overrides, cause: str, config: Path, tmp_path: Path
) -> None:
    done = sightline(*run_arguments(tmp_path, config, *overrides(tmp_path)), home=tmp_path, timeout=500)
    run = the_run(tmp_path / "runs")
    (event,) = [event for event in read(run.events) if event["kind"] == DOUBT_EVENT]
    assert cause in event["why"]
    output = " ".join((done.stdout + done.stderr).split())
    assert output.index(cause) < output.index("train epoch 1")
    assert cause in run.report.read_text()


def no_learning_rate(folder: Path, config: Path) -> list[str]:
    return ["actor.optim.lr=0"]


def no_end(folder: Path, config: Path) -> list[str]:
    """A model none of whose files names an end that can be sampled."""
    sightline("prepare", str(config), "--runs-dir", str(folder / "prepared"), home=folder)
    model = shutil.copytree(the_run(folder / "prepared").initial_model, folder / "endless")
    for name, changes in {
        "config.json": {"eos_token_id": 9999},
        "generation_config.json": {"eos_token_id": 9999},
        "tokenizer_config.json": {"eos_token": None},
    }.items():
        fields = json.loads((model / name).read_text())
        (model / name).write_text(json.dumps(fields | changes))
    (model / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    return [f"model.source={{type: pretrained, path: {model}}}"]


@pytest.mark.parametrize(
    ("overrides", "cause"),
    [
        pytest.param(no_learning_rate, "actor.optim.lr", id="learning rate 0"),
        pytest.param(no_end, "no token that can be sampled ends a response", id="wrong end token"),
    ],
)
def test_a_run_that_could_not_learn_does_not_start(overrides, cause: str, config: Path, tmp_path: Path) -> None:
    changes = overrides(tmp_path, config)
    done = sightline(*run_arguments(tmp_path, config, *changes), home=tmp_path, check=False)
    assert done.returncode == 1
    assert cause in " ".join(done.stderr.split())
    assert not (tmp_path / "runs").exists()
