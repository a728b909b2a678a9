"""The scoring process's own code, called here without one; test_pool.py has the real processes."""

import pickle
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from rl_core.config.reward import RewardConfig
from rl_core.rewards import judging, worker
from rl_core.rewards.messages import Outcome, PoolOrder
from rl_core.rewards.registry import resolve_rewards
from tests.rl_core.rewards.samples import make_sample


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch):
    def load(function: str, **kwargs) -> None:
        order = PoolOrder(
            specs=resolve_rewards(RewardConfig(function=function, kwargs=kwargs)).specs,
            workers=1,
            timeout_seconds=1.0,
            batch_timeout_seconds=1.0,
            memory_limit_bytes=2**30,
        )
        monkeypatch.setattr(worker, "_process", worker._Process(order), raising=False)

    return load


def chunk(*responses: str) -> bytes:
    return pickle.dumps([make_sample(response) for response in responses])


def test_a_stretch_of_a_chunk_is_scored_in_order(load) -> None:
    load("count")
    outcomes, seconds = worker.score_chunk(0, chunk("no", "<answer>3</answer>", "<answer>4</answer>", "no"), 1, 3)
    assert [(outcome.components["accuracy"], outcome.parsed) for outcome in outcomes] == [(1.0, "3"), (0.0, "4")]
    assert seconds > 0


def test_the_rest_of_a_slow_chunk_is_given_back(load, monkeypatch: pytest.MonkeyPatch) -> None:
    load("count")
    looks = count()
    a_call = 0.6 * judging.SLICE_SECONDS  # a clock that moves by so much each time somebody looks at it
    clock = SimpleNamespace(perf_counter=lambda: next(looks) * a_call)
    monkeypatch.setattr(judging, "time", clock)
    outcomes, _ = worker.score_chunk(0, chunk(*["no"] * 5), 0, 5)
    assert len(outcomes) == 2


def test_a_failure_says_which_sample_it_cost(load) -> None:
    load(f"{Path(__file__).with_name('strangers.py')}:judge", weight=2.0)
    outcomes, _ = worker.score_chunk(0, chunk("good", "raise", "good"), 0, 3)
    good = Outcome({"overall": 2.0, "length": 5.0}, None, None)
    assert outcomes == [good, Outcome({}, None, "KeyError: 'the reason'"), good]


def test_a_full_memory_names_the_limit(load) -> None:
    load("count")
    assert worker._process.lanes[0].describe(MemoryError()) == "MemoryError: more than reward.memory_limit_gib = 1"


def test_a_reward_that_does_not_load_gives_the_reason_with_each_sample(load, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def score(sample): ...\nimport nowhere_to_be_found\n")
    load(f"{tmp_path}/broken.py:score")
    outcomes, _ = worker.score_chunk(0, chunk("x", "y"), 0, 2)
    reason = f"could not load {tmp_path}/broken.py:score: ModuleNotFoundError: No module named 'nowhere_to_be_found'"
    assert outcomes == [Outcome({}, None, reason)] * 2


def test_a_reason_that_no_file_can_hold_is_spelt_out(load, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(r"def score(sample): ...; raise OSError('half \ud83d')".replace("; ", "\n"))
    load(f"{tmp_path}/broken.py:score")
    outcomes, _ = worker.score_chunk(0, chunk("x"), 0, 1)
    assert outcomes == [Outcome({}, None, rf"could not load {tmp_path}/broken.py:score: OSError: half \ud83d")]


def test_a_reason_is_cut_to_what_can_be_read(load, tmp_path: Path) -> None:
    (tmp_path / "wordy.py").write_text("def score(sample): raise OSError('word ' * 100_000)\n")
    load(f"{tmp_path}/wordy.py:score")
    ((outcome,), _) = worker.score_chunk(0, chunk("x"), 0, 1)
    assert outcome.error.startswith("OSError: word word")
    assert outcome.error.endswith("... (of 500009 characters)")
    assert len(outcome.error) < 2100


def test_draws_from_numpy_depend_on_the_sample_alone(load, tmp_path: Path) -> None:
    (tmp_path / "drawing.py").write_text("import numpy\ndef score(sample): return numpy.random.random()\n")
    load(f"{tmp_path}/drawing.py:score")
    outcomes, _ = worker.score_chunk(0, chunk("x", "y", "x"), 0, 3)
    first, other, again = (outcome.components["overall"] for outcome in outcomes)
    assert first == again != other
