"""What the hub does not give is named for all names at once, and nobody waits for it."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.planning.hub import HubAnswer, ask_hub, hub_problems, no_waiting
from tests.servers import answering, free_port

ROOT = Path(__file__).parents[3]
ALL = {"model.source.path", "data.train.name", "data.validation.name"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


@pytest.fixture
def _hub(monkeypatch) -> Iterator[None]:
    """Knows owner/rows, with two configurations, says about every other name that there is none, and does not answer
    for owner/model in time."""
    ended = threading.Event()

    def answer(path: str, _: bytes) -> tuple[int, object]:
        if "owner/model" in path:
            ended.wait(60.0)
        card = {"configs": [{"config_name": "main"}, {"config_name": "socratic"}]}
        rows = {"id": "owner/rows", "sha": COMMIT, "siblings": [], "cardData": card}
        return (200, rows) if "owner/rows" in path else (404, {})

    with answering(answer) as address:
        monkeypatch.setattr(constants, "ENDPOINT", address)
        yield
        ended.set()


@pytest.fixture
def _nowhere(monkeypatch) -> None:
    """Where the hub should be there is nothing."""
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free_port()}")


def from_the_hub(*overrides: str) -> RunConfig:
    return load_config(
        Path("tests/e2e/configs/small.yaml"),
        [
            "model.source={type: pretrained, path: owner/model}",
            "data.train={type: hub, name: owner/rows@train, config: main}",
            "data.validation={type: hub, name: owner/gone@test}",
            *overrides,
        ],
    )


def asked_of(answers: list[HubAnswer]) -> set[str]:
    return {answer.name.key for answer in answers}


@pytest.mark.usefixtures("_nowhere")
def test_without_a_hub_everything_that_is_missing_is_named_at_once(caplog):
    problems = hub_problems(ask_hub(from_the_hub(), seconds=60.0))
    assert not caplog.records, "nothing of the hub's library is shown"
    assert {problem.where for problem in problems} == ALL
    assert all(problem.fatal and "must come from the hub" in problem.what for problem in problems)


@pytest.mark.usefixtures("_hub")
@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("data.train.config=null", "several configurations: set `config` to one of main, socratic"),
        ("data.train.config=sokratic", "no configuration 'sokratic': set `config` to one of main, socratic"),
        ("data.train.config=socratic", None),
    ],
)
def test_a_data_set_with_several_configurations_wants_one_of_them(override: str, why: str | None) -> None:
    answers = ask_hub(from_the_hub("model.source={type: tiny}", override), seconds=60.0)
    problems = [problem.what for problem in hub_problems(answers) if problem.where == "data.train.name"]
    assert problems == ([] if why is None else [f"owner/rows has {why}"])


@pytest.mark.usefixtures("_hub")
def test_a_hub_that_does_not_answer_is_not_waited_for():
    answers = ask_hub(from_the_hub(), seconds=1.0)
    (silent,) = [problem for problem in hub_problems(answers) if problem.where == "model.source.path"]
    assert not silent.fatal and "did not answer in time" in silent.what


@pytest.mark.usefixtures("_hub")
def test_names_that_the_hub_has_are_no_problem_and_missing_ones_are_named():
    answers = ask_hub(from_the_hub("model.source={type: tiny}"), seconds=60.0)
    assert asked_of(answers) == {"data.train.name", "data.validation.name"}
    (problem,) = hub_problems(answers)
    assert problem.where == "data.validation.name"
    assert "the hub has no dataset owner/gone, or none for this account" in problem.what


@pytest.mark.usefixtures("_nowhere")
def test_names_that_the_cache_holds_are_no_problem_and_are_read_from_it():
    for folder in ("models--owner--model", "datasets--owner--rows", "datasets--owner--gone"):
        (Path(constants.HF_HUB_CACHE) / folder).mkdir(parents=True)
    answers = ask_hub(from_the_hub(), seconds=60.0)
    assert asked_of(answers) == {"data.train.name", "data.validation.name"}, "a branch may have moved"
    assert hub_problems(answers) == []
    with no_waiting(answers):
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE
    pinned = from_the_hub(f"data.train.revision={COMMIT}", f"data.validation.revision={COMMIT}")
    assert ask_hub(pinned, seconds=60.0) == []
