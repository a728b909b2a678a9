"""Evaluation with the real scoring pool; the responses come from a table."""

import logging
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from rl_core.config.reward import RewardConfig
from rl_core.config.stages import EvaluationConfig
from rl_core.evaluation.evaluate import evaluate_prompts
from rl_core.evaluation.result import summarise
from rl_core.isolation.failed_share import TooManyFailures
from rl_core.progress import TALLY, Progress, SilentProgress
from rl_core.randomness import keyed_seed
from rl_core.rewards.pool import RewardPool
from rl_core.types import GenerationRequest, Insertion, Prompt, Rollout, Sampling, ToolCall
from tests.rl_core.builders import make_prompt, make_rollout

SILENT = SilentProgress()
PROMPTS = [replace(make_prompt(f"p{i}"), answer=str(i), image_uids=(f"i{i}",)) for i in range(6)]


class TableEngine:
    """Yields `answer(request)` for each request, the last one first, and remembers what was asked."""

    def __init__(self, answer) -> None:
        self.answer = answer
        self.asked: list[tuple[Sequence[GenerationRequest], Sampling]] = []

    def __call__(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> Iterator[Rollout]:
        self.asked.append((requests, sampling))
        for request in reversed(requests):
            yield rollout_of(request, self.answer(request))


def rollout_of(request: GenerationRequest, text: str) -> Rollout:
    rollout = make_rollout(request.prompt.uid, request.sample_index, length=len(text) + 1)
    return replace(rollout, text=text, finish_reason="stop" if text else "length")


@pytest.fixture(scope="module")
def pool() -> Iterator[RewardPool]:
    with RewardPool(RewardConfig(function="count", workers=1)) as pool:
        yield pool


def evaluate(
    engine: TableEngine,
    pool: RewardPool,
    prompts: Sequence[Prompt] = PROMPTS,
    *,
    progress: Progress = SILENT,
    max_failed_share: float = 1.0,
    **settings,
):
    return evaluate_prompts(
        prompts,
        generate=engine,
        pool=pool,
        config=EvaluationConfig(**settings),
        max_response_length=12,
        run_seed=3,
        progress=progress,
        max_failed_share=max_failed_share,
    )


def right(request: GenerationRequest) -> str:
    return f"<answer>{request.prompt.answer}</answer>"


def test_both_modes_ask_and_judge_every_prompt(pool):
    engine = TableEngine(lambda request: right(request) if request.sample_index != 1 else "")
    items = evaluate(engine, pool, n=3)
    assert [len(requests) for requests, _ in engine.asked] == [6, 18]
    assert [sampling for _, sampling in engine.asked] == [
        Sampling(temperature=0.0, max_tokens=12),
        Sampling(temperature=0.6, top_p=0.95, max_tokens=12),
    ]
    assert [item.uid for item in items["greedy"]] == [prompt.uid for prompt in PROMPTS]
    assert [(item.uid, item.sample_index) for item in items["sampled"]] == [
        (p.uid, i) for p in PROMPTS for i in range(3)
    ]
    assert summarise(items["greedy"]).accuracy == 1.0
    sampled = summarise(items["sampled"])
    assert (sampled.accuracy, sampled.parse_failure_rate, sampled.truncation_rate) == (
        pytest.approx(2 / 3),
        pytest.approx(1 / 3),
        pytest.approx(1 / 3),
    )


def test_the_bar_moves_while_no_response_has_finished(pool, monkeypatch):
    monkeypatch.setattr("rl_core.progress._SECONDS_BETWEEN_LOOKS", 0.001)
    shown = []
    moved = threading.Event()

    class Shown(SilentProgress):
        @contextmanager
        def bar(self, description, total):
            def advance(count=1, figures="", now=None):
                if now is not None and now.units:
                    shown.append(now)
                    moved.set()

            yield advance

    class SlowEngine(TableEngine):
        def __call__(self, requests, sampling):
            TALLY.sampled += 36
            TALLY.under_way += 36
            assert moved.wait(30)
            TALLY.under_way -= 36
            yield from super().__call__(requests, sampling)

    evaluate(SlowEngine(right), pool, progress=Shown(), modes=("greedy",))
    assert shown[0].units == 3.0, "3 responses of 12 tokens"
    assert re.fullmatch(r"36 tokens, [\d,]+ tokens/s", shown[0].words)


def test_an_item_records_prompt_response_and_grade(pool):
    (item,) = evaluate(TableEngine(right), pool, PROMPTS[2:3], modes=("greedy",))["greedy"]
    assert (item.answer, item.response, item.parsed, item.parse_failed) == ("2", "<answer>2</answer>", "2", False)
    assert (item.is_right, item.components["overall"], item.error) == (True, 1.0, None)
    assert (item.length, item.finish_reason, item.image_uids) == (19, "stop", ("i2",))


def test_an_item_of_a_conversation_has_its_turns(pool):
    ids = np.array([1], np.int32)
    call = ToolCall(name="look", arguments="{}", result="a cat", outcome="answered")
    put = Insertion(after=1, token_ids=ids, engine_token_ids=ids, turn="I look", image_uids=("crop",), calls=(call,))

    def conversed(requests, sampling):
        for request in requests:
            yield replace(rollout_of(request, "3"), insertions=(put,) * (request.prompt.uid == PROMPTS[0].uid))

    first, *others = evaluate(conversed, pool, modes=["greedy"])["greedy"]
    assert [turn.get("content") or turn["calls"][0]["result"] for turn in first.turns] == ["I look", "a cat", "3"]
    assert {item.turns for item in others} == {()}


def test_seeds_are_keyed_by_mode_prompt_and_sample(pool):
    engine = TableEngine(right)
    evaluate(engine, pool, n=2)
    seeds = [request.seed for requests, _ in engine.asked for request in requests]
    assert len(set(seeds)) == len(seeds) == 18
    assert engine.asked[1][0][3].seed == keyed_seed(3, "evaluation", "sampled", "p1", 1)


def test_a_response_without_a_score_is_left_out_and_named(pool, caplog):
    prompts = [*PROMPTS[:3], replace(PROMPTS[3], answer="many")]
    with caplog.at_level(logging.WARNING):
        items = evaluate(TableEngine(right), pool, prompts, modes=("greedy",))["greedy"]
    assert [item.is_right for item in items] == [True, True, True, None]
    assert "'many' is not a whole number" in items[3].error
    assert (items[3].components, items[3].parse_failed) == ({}, None)
    result = summarise(items)
    assert (result.accuracy, result.n, result.failed_rewards) == (1.0, 3, 1)
    assert "1 of 4 greedy responses have no score and are left out of the accuracy; the first: p3" in caplog.text


@pytest.mark.parametrize("bound", [0.25, 0.24])
def test_above_the_bound_a_part_of_the_responses_is_no_result(pool, bound):
    prompts = [*PROMPTS[:3], replace(PROMPTS[3], answer="many")]
    if bound == 0.25:
        items = evaluate(TableEngine(right), pool, prompts, modes=("greedy",), max_failed_share=bound)["greedy"]
        assert len(items) == 4
        return
    with pytest.raises(TooManyFailures, match=r"(?s)1 of 4 rewards of the greedy responses failed.*p3 sample 0:"):
        evaluate(TableEngine(right), pool, prompts, modes=("greedy",), max_failed_share=bound)


def test_an_unknown_accuracy_key_is_an_error(pool):
    with pytest.raises(
        ValueError, match="'correct' is not a component of the reward; it has accuracy, format, overall"
    ):
        evaluate(TableEngine(right), pool, accuracy_key="correct")
