"""The isolated process's own code, called here without one; test_pool.py has the real processes."""

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from rl_core.config.reward import RewardConfig
from rl_core.isolation import calling
from rl_core.isolation.order import Call
from rl_core.isolation.worker import Functions
from rl_core.rewards.messages import CallResult
from rl_core.rewards.registry import resolve_rewards
from tests.rl_core.rewards.samples import make_sample, order_of, own

pytestmark = pytest.mark.usefixtures("own_imports")


def load(function: str, **kwargs) -> Functions:
    functions = Functions(order_of(resolve_rewards(RewardConfig(function=function, kwargs=kwargs)).specs))
    functions.load(0)
    return functions


def answer(functions: Functions, *responses: str) -> tuple[Any, ...]:
    samples = [make_sample(response) for response in responses]
    return functions.answer(Call(function_index=0, inputs=samples, timeout_seconds=1.0, timeout_reason="too long"))


def test_the_rest_of_a_slow_chunk_is_given_back(monkeypatch):
    functions = load("count")
    looks = count()
    a_call = 0.6 * calling.SLICE_SECONDS  # a clock that moves by so much each time somebody looks at it
    clock = SimpleNamespace(perf_counter=lambda: next(looks) * a_call)
    monkeypatch.setattr(calling, "time", clock)
    _, results, _ = answer(functions, *["no"] * 5)
    assert len(results) == 2


def test_a_reward_that_does_not_load_gives_the_reason_with_each_sample(tmp_path):
    broken = own(tmp_path, "def score(sample): ...\nimport nowhere_to_be_found\n")
    _, results, _ = answer(load(broken), "x", "y")
    reason = f"could not load {broken}: ModuleNotFoundError: No module named 'nowhere_to_be_found' (own.py line 2)"
    assert results == [CallResult({}, None, reason)] * 2


def test_a_reason_that_no_file_can_hold_is_spelt_out(tmp_path):
    broken = own(tmp_path, r"def score(sample): ...; raise OSError('half \ud83d')".replace("; ", "\n"))
    _, results, _ = answer(load(broken), "x")
    reason = rf"could not load {broken}: OSError: half \ud83d (own.py line 2)"
    assert results == [CallResult({}, None, reason)]


def test_a_reason_is_cut_to_what_can_be_read(tmp_path):
    wordy = own(tmp_path, "def score(sample): raise OSError('word ' * 100_000)\n")
    _, (result,), _ = answer(load(wordy), "x")
    assert result.error.startswith("OSError: word word")
    assert result.error.endswith("... (of 500009 characters) (own.py line 1)")
    assert len(result.error) < 2100


@pytest.mark.parametrize("generator", ["random", "numpy.random"])
def test_draws_from_a_global_generator_depend_on_the_sample_alone(tmp_path, generator):
    drawing = own(tmp_path, f"import random, numpy\ndef score(sample): return {generator}.random()\n")
    _, results, _ = answer(load(drawing), "x", "y", "x")
    first, other, again = (result.components["overall"] for result in results)
    assert first == again != other
