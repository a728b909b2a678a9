"""An interrupted evaluation goes on from the items already answered, with the same result."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rl_core.evaluation.answers import AnswerFile
from rl_core.types import GenerationRequest, Rollout, Sampling
from tests.rl_core.builders import make_prompt

SAMPLING = Sampling(temperature=0.0, max_tokens=8)
REQUESTS = [
    GenerationRequest(prompt=replace(make_prompt(f"p{number}")), sample_index=index, seed=1000 + 10 * number + index)
    for number in range(4)
    for index in range(2)
]


class Engine:
    """Answers a request with its seed; dies after `alive` responses."""

    def __init__(self, alive: int | None = None) -> None:
        self.alive = alive
        self.asked: list[int] = []

    def __call__(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> Iterator[Rollout]:
        assert sampling == SAMPLING
        self.asked += [request.seed for request in requests]
        for number, request in enumerate(reversed(requests)):
            if number == self.alive:
                raise RuntimeError("the engine is lost")
            yield answer(request)


def answer(request: GenerationRequest) -> Rollout:
    length = request.seed % 7 + 1
    return Rollout(
        prompt_uid=request.prompt.uid,
        sample_index=request.sample_index,
        response_ids=np.arange(length, dtype=np.int32) * request.seed,
        log_probs=np.linspace(-1.1, 0.0, length, dtype=np.float32),
        text=f"{request.seed} “said”\n",
        finish_reason="stop",
        policy_version=3,
    )


def drawn(path: Path, engine: Engine, *, key: str = "k", requests: Sequence[GenerationRequest] = REQUESTS):
    """Responses by key, as plain values."""
    rollouts = AnswerFile(path, key=key).around(engine)(requests, SAMPLING)
    return {rollout.key: plain(rollout) for rollout in rollouts}


def plain(rollout: Rollout) -> tuple:
    return (
        rollout.response_ids.tolist(),
        rollout.response_ids.dtype,
        rollout.log_probs.tobytes(),
        rollout.log_probs.dtype,
        rollout.text,
        rollout.finish_reason,
        rollout.policy_version,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evaluations" / "base.answers.jsonl"


def interrupted(path: Path, alive: int) -> None:
    with pytest.raises(RuntimeError, match="the engine is lost"):
        drawn(path, Engine(alive))


def test_the_rest_alone_is_drawn_and_nothing_differs(path: Path) -> None:
    interrupted(path, 3)
    engine = Engine()
    assert drawn(path, engine) == {request_key(request): plain(answer(request)) for request in REQUESTS}
    assert engine.asked == [request.seed for request in REQUESTS[:-3]]


def test_a_finished_one_asks_for_nothing(path: Path) -> None:
    complete, engine = drawn(path, Engine()), Engine()
    assert drawn(path, engine) == complete
    assert engine.asked == []


def test_a_line_that_was_cut_off_is_drawn_again(path: Path) -> None:
    interrupted(path, 3)
    path.write_bytes(path.read_bytes()[:-20])
    engine = Engine()
    assert len(drawn(path, engine)) == len(REQUESTS)
    assert engine.asked == [request.seed for request in REQUESTS[:-2]]
    assert drawn(path, Engine()).keys() == {request_key(request) for request in REQUESTS}


def test_answers_of_other_weights_or_settings_are_not_taken(path: Path) -> None:
    interrupted(path, 3)
    engine = Engine()
    drawn(path, engine, key="another")
    assert len(engine.asked) == len(REQUESTS)
    assert json.loads(path.read_text().splitlines()[0]) == {"key": "another"}


def test_an_evaluation_that_is_written_leaves_no_file(path: Path) -> None:
    drawn(path, Engine())
    AnswerFile(path, key="k").remove()
    assert not path.exists()
    AnswerFile(path, key="k").remove()


def request_key(request: GenerationRequest) -> tuple[str, int]:
    return request.prompt.uid, request.sample_index
