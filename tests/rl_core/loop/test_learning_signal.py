"""Steps that teach nothing: the cause that is reported, when it is reported, and when the run ends."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rl_core.config.run import RunConfig
from rl_core.loop.learning_signal import NoSignal, SignalWatch, missing_signal, out_of_range
from rl_core.loop.step_recorder import StepRecord
from rl_core.types import RolloutKey, Score
from tests.rl_core.steps import changed, take_step


@pytest.fixture
def record(prompts, config, worker, rewards) -> StepRecord:
    """A step whose responses were not cut, one of each group right, and whose advantages are not 0."""
    taken = take_step(prompts, step=1, config=config, workers=worker, rewards=rewards)
    whole = with_metrics(taken, {"response_length/clip_ratio": 0.0})
    return with_advantages(with_scores(whole, lambda key: right_if(key[1] == 0)), 1.0)


def right_if(is_right: bool, *, parsed: str | None = "3") -> Score:
    return Score(components={"overall": float(is_right)}, parsed=parsed)


def with_scores(record: StepRecord, give: Callable[[RolloutKey], Score]) -> StepRecord:
    generated = record.collected.generated
    scored = replace(generated, scores={key: give(key) for key in generated.scores})
    return replace(record, collected=replace(record.collected, generated=scored))


def with_metrics(record: StepRecord, metrics: dict[str, float]) -> StepRecord:
    return replace(record, metrics={**record.metrics, **metrics})


def with_advantages(record: StepRecord, advantage: float, *, in_loss: bool = True) -> StepRecord:
    groups = [
        replace(
            group,
            samples=[
                replace(sample, advantages=0 * sample.advantages + advantage, in_loss=in_loss)
                for sample in group.samples
            ],
        )
        for group in record.learned.groups
    ]
    return replace(record, learned=replace(record.learned, groups=groups))


def cause(record: StepRecord, config: RunConfig, *, parses: bool = True) -> str:
    return f"{missing_signal(record, config, has_parser=lambda source: parses)}"


def test_each_kind_of_missing_signal_has_its_cause(record, config):
    assert cause(record, config) == "None"
    wrong = with_scores(record, lambda key: right_if(False))
    unread = with_scores(record, lambda key: right_if(False, parsed=None))
    assert "the learning rate is 0 (actor.optim.lr)" in cause(with_metrics(record, {"actor/lr": 0.0}), config)
    assert "the reward is 0 for every response" in cause(wrong, config)
    assert "the reward is 0 for every response" in cause(unread, config, parses=False)
    assert "the reward finds no answer in nearly all responses" in cause(unread, config)
    for silent in (wrong, unread, with_advantages(record, 1.0, in_loss=False)):
        cut = with_metrics(silent, {"response_length/clip_ratio": 1.0})
        assert "cut at rollout.max_response_length" in cause(cut, config)
    first = record.collected.generated.groups[0].prompt.uid
    easy_and_hard = with_scores(record, lambda key: right_if(key[0] == first))
    assert "all responses to a prompt have one reward" in cause(with_advantages(easy_and_hard, 0.0), config)


def test_responses_that_overlong_filtering_leaves_out_are_named(record, config):
    cut = with_metrics(with_advantages(record, 1.0, in_loss=False), {"response_length/clip_ratio": 1.0})
    found = cause(cut, changed(config, {"algorithm.overlong_filtering": True}))
    assert "and algorithm.overlong_filtering leaves such responses out" in found


def test_two_steps_without_signal_are_warned_of_once_for_a_cause_and_may_end_the_run(record, config, caplog):
    events = []
    watch = SignalWatch(
        changed(config, {"trainer.stop_without_signal": 4}),
        has_parser=lambda source: True,
        log_event=lambda kind, **facts: events.append({"kind": kind} | facts),
    )
    wrong = with_scores(record, lambda key: right_if(False))
    for number, step in enumerate([wrong, record, wrong, wrong, wrong], start=1):
        watch.see(replace(step, step=number))
    assert [(event["kind"], event["step"], event["steps"]) for event in events] == [("no-signal", 4, 2)]
    assert caplog.text.count("2 steps in a row taught nothing: the reward is 0 for every response") == 1
    with pytest.raises(NoSignal, match=r"step 6: 4 steps in a row .*trainer.stop_without_signal: 4"):
        watch.see(replace(wrong, step=6))


SOUND = {"actor/entropy": 0.5, "response_length/mean": 20.0, "kl/reference": 0.3, "actor/approx_kl": 0.01}


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({}, None),
        ({"actor/entropy": 0.02}, None),  # of 20 tokens 0.4 nats, a few different responses
        ({"actor/entropy": 0.004}, "nearly all responses to a prompt are equal"),
        ({"actor/entropy": 0.004, "response_length/mean": 500.0}, None),
        ({"actor/entropy": 1.5}, None),
        ({"actor/entropy": 3.5}, "drifts towards random tokens"),
        ({"kl/reference": 6.0}, "has left what it knew"),
        ({"actor/kl_loss": 6.0}, "has left what it knew"),
        ({"actor/approx_kl": 1.5}, "an update moves the policy"),
    ],
)
def test_entropy_and_kl_out_of_range_are_reported_with_what_to_do(metrics, words):
    found = out_of_range(SOUND | metrics, first_entropy=0.5)
    assert [words in why for why in found] == ([] if words is None else [True])


def test_a_model_that_begins_with_random_tokens_does_not_drift_towards_them():
    assert out_of_range(SOUND | {"actor/entropy": 6.0}, first_entropy=6.1) == []


def test_what_is_out_of_range_is_warned_of_once_after_two_steps_in_a_row(record, config, caplog):
    events = []
    watch = SignalWatch(
        config, has_parser=lambda source: True, log_event=lambda kind, **facts: events.append({"kind": kind} | facts)
    )
    far, near = with_metrics(record, SOUND | {"kl/reference": 6.0}), with_metrics(record, SOUND)
    for number, step in enumerate([far, near, far, far, far], start=1):
        watch.see(replace(step, step=number))
    assert [(event["kind"], event["step"], event["steps"]) for event in events] == [("out-of-range", 4, 2)]
    assert "step 4: the KL to the reference is above 5 nats a token" in caplog.text
