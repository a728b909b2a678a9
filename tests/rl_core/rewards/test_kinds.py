"""Every kind of reward that people write, in real processes, against calling the function directly in this one."""

import asyncio
import inspect
import runpy
import sys
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rl_core.config.reward import RewardConfig
from rl_core.rewards.calling import easyr1_input
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.sample import RewardSample
from rl_core.types import Score
from tests.rl_core.rewards.samples import make_sample, without_place

FOLDER = Path(__file__).with_name("kinds")

OWN = (
    *("several", "numpy_several", "callable_object", "asynchronous", "returns_a_coroutine", "with_arguments"),
    *("imports_a_neighbour", "imports_a_neighbouring_package", "imports_late", "reads_a_file_beside_it"),
    *("looks_at_the_row", "knows_the_type_of_the_truth", "in_threads", "in_forked_processes"),
    *("in_spawned_processes", "unicode_names"),
)
SEQUENTIAL = ("several", "its_keys", "changes_its_input", "asynchronous")
BATCH = ("several", "as_a_generator", "as_an_array", "asynchronous", "place", "object_with_state")
MATH = ("compute_score", "in_forked_processes", "in_spawned_processes")

WITHOUT_PROCESSES = {"in_forked_processes": "in_this_process", "in_spawned_processes": "in_this_process"}
"""A function that starts processes would start them from the test runner: its direct call is this one's, which says the
same without them."""

KWARGS: dict[str, dict[str, Any]] = {
    "own.with_arguments": {"weights": [1, 2.5], "table": {"inner": {"deep": [0, 7]}}, "nothing": None, "flag": True},
    "sequential.several": {"format_weight": 0.25},
}

SCORING = [
    *(f"own.{name}" for name in OWN),
    *(f"sequential.{name}" for name in SEQUENTIAL),
    *(f"batch.{name}" for name in BATCH),
    *(f"math.{name}" for name in MATH),
]
KINDS = [*SCORING, "own.raises_its_own", "own.asserts", "own.takes_nothing", "sequential.reads_a_missing_key"]
TRUTHS = ["3", 3, 2.5, True, [[1, 2], [3, 4.5]], {"box": [1, 2]}]


def samples_of(kind: str) -> list[RewardSample]:
    responses = ["3", "a short one", "ünïcode \U0001f600", "a b c d e f", "x" * 50, "other"]
    return [
        replace(
            make_sample(response, truth, length=index + 1, source=kind, index=index),
            extra={"boxes": [[1, index], [0.5, 2]], "tags": ["a"]},
            image_uids=("u1", "u2")[: index % 3],
            response_ids=list(range(index + 1)),
        )
        for index, (response, truth) in enumerate(zip(responses, TRUTHS, strict=True))
    ]


@pytest.fixture(scope="module")
def scores() -> dict[str, list[Score]]:
    """What a pool of two processes says to the samples of every kind, handed in among one another."""
    by_source = {}
    for kind in KINDS:
        file, _, name = kind.partition(".")
        by_source[kind] = {"function": f"{FOLDER}/{file}.py:{name}", "kwargs": KWARGS.get(kind, {})}
    config = RewardConfig(by_source=by_source, workers=2, timeout_seconds=20.0, memory_limit_gib=2.0)
    with RewardPool(config) as pool:
        pending = {kind: [pool.submit(sample) for sample in samples_of(kind)] for kind in KINDS}
        pool.flush()
        return {kind: [future.result(timeout=120) for future in futures] for kind, futures in pending.items()}


@pytest.fixture(scope="module")
def sources() -> Generator[dict[str, dict[str, Any]], None, None]:
    """The files, run in this process."""
    known, path = set(sys.modules), [*sys.path]
    sys.path.append(str(FOLDER))
    yield {name: runpy.run_path(str(FOLDER / f"{name}.py")) for name in ("own", "sequential", "batch", "math")}
    sys.path[:] = path
    for name in set(sys.modules) - known:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def directly(function: Any, argument: object, kind: str) -> Any:
    result = function(argument, **KWARGS.get(kind, {}))
    return asyncio.run(awaited(result)) if inspect.isawaitable(result) else result


async def awaited(result: Any) -> Any:
    return await result


def components(result: Any) -> dict[str, float]:
    named = result if isinstance(result, Mapping) else {"overall": result}
    return {name: float(value) for name, value in named.items()}


def expected_of(kind: str, functions: dict[str, dict[str, Any]]) -> list[Any]:
    """What the function returns for each sample when it is called directly, in the way of its style."""
    file, _, name = kind.partition(".")
    samples = samples_of(kind)
    if file == "own":
        function = functions[file][WITHOUT_PROCESSES.get(name, name)]
        return [directly(function, sample, kind) for sample in samples]
    inputs = [easyr1_input(sample) for sample in samples]
    function = functions[file]["compute_score" if file == "math" else name]
    if file == "sequential":
        return [directly(function, each, kind) for each in inputs]
    return list(directly(function, inputs, kind))


@pytest.mark.parametrize("kind", SCORING)
def test_a_function_of_every_kind_scores_as_it_does_directly(sources, scores, kind):
    expected = map(components, expected_of(kind, sources))
    assert [(score.error, score.components) for score in scores[kind]] == [(None, named) for named in expected]


def test_a_function_that_fails_costs_its_samples_and_names_the_line_of_the_users_file(scores):
    lines = (FOLDER / "own.py").read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, start=1) if 'raise Own("reason")' in line]
    assert {score.error for score in scores["own.raises_its_own"]} == {f"Own: reason (own.py line {number})"}
    failed = [(score.error or "").startswith("AssertionError: the reason") for score in scores["own.asserts"]]
    assert failed == [sample.response != "other" for sample in samples_of("own.asserts")]
    for score in scores["own.takes_nothing"]:
        assert score.error == "TypeError: takes_nothing() takes 0 positional arguments but 1 was given"


def test_a_key_that_easyr1_does_not_give_is_named(scores):
    for score in scores["sequential.reads_a_missing_key"]:
        assert without_place(score.error) == "KeyError: 'prompt'"
