"""An interrupted evaluation goes on from the items already answered, with the same result."""

import json
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rl_core.evaluation.response_file import ResponseFile
from rl_core.types import GenerationRequest, Rollout, Sampling
from tests.rl_core.builders import facts_of, made_up_rollout, make_prompt

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
    ids, log_probs = np.arange(length, dtype=np.int32) * request.seed, np.linspace(-1.1, 0.0, length, dtype=np.float32)
    rollout = made_up_rollout(request.prompt.uid, request.sample_index, ids, log_probs, version=3)
    return replace(rollout, text=f"{request.seed} “said”\n")


EXPECTED = {answer(request).key: facts_of(answer(request)) for request in REQUESTS}


def drawn(path: Path, engine: Engine, *, key: str = "k", requests: Sequence[GenerationRequest] = REQUESTS):
    """Responses by key, as plain values."""
    rollouts = ResponseFile(path, key=key).around(engine)(requests, SAMPLING)
    return {rollout.key: facts_of(rollout) for rollout in rollouts}


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "evaluations" / "base.answers.jsonl"


def interrupted(path: Path, alive: int) -> None:
    with pytest.raises(RuntimeError, match="the engine is lost"):
        drawn(path, Engine(alive))


def test_the_rest_alone_is_drawn_and_nothing_differs(path):
    interrupted(path, 3)
    engine = Engine()
    assert drawn(path, engine) == EXPECTED
    assert engine.asked == [request.seed for request in REQUESTS[:-3]]


@pytest.mark.parametrize("unreadable", [b"\0\0\0", b"\0\0\0\n", b"7\n", b"[]\n", b'{"seed": 1}\n', b'{"key": "k"}\n'])
def test_responses_after_the_last_readable_line_are_sampled_again(path, unreadable, caplog):
    """A power cut leaves blocks of NULs where the last lines were."""
    interrupted(path, 4)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], unreadable, *lines[3:]]))
    engine = Engine()
    assert drawn(path, engine) == EXPECTED
    assert engine.asked == [request.seed for request in REQUESTS[:-2]]
    assert f"{path} cannot be read from line 4 on" in caplog.text
    assert drawn(path, Engine(alive=0)).keys() == EXPECTED.keys()


@pytest.mark.parametrize("end", [b"", b'{"seed": 10'])
def test_a_full_disk_takes_no_kept_answer(path, end):
    interrupted(path, 3)
    kept = path.read_bytes()
    path.write_bytes(kept + end)
    with no_file_can_grow_beyond(len(kept) // 2):
        assert len(drawn(path, Engine(alive=0), requests=REQUESTS[-3:])) == 3
    assert path.read_bytes() == kept


@contextmanager
def no_file_can_grow_beyond(size: int) -> Iterator[None]:
    """Writing fails as on a full disk, cutting and replacing by less does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_answers_of_other_weights_or_settings_are_not_taken(path):
    interrupted(path, 3)
    engine = Engine()
    drawn(path, engine, key="another")
    assert len(engine.asked) == len(REQUESTS)
    assert json.loads(path.read_text().splitlines()[0]) == {"key": "another"}


def test_an_evaluation_that_is_written_leaves_no_file(path):
    drawn(path, Engine())
    ResponseFile(path, key="k").remove()
    assert not path.exists()
    ResponseFile(path, key="k").remove()
