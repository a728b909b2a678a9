"""Validation answers the held-out prompts in the configured mode, with the evaluation's own sampling."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rl_core.config.run import RunConfig
from rl_core.data.prepared import PreparedDataset
from rl_core.evaluation.base_answers import BaseAnswers
from rl_core.evaluation.evaluate import evaluate_prompts
from rl_core.loop.validation import Validation, Validator
from rl_core.progress import SilentProgress
from rl_core.types import Prompt
from rl_core.workers.protocol import awake_generator
from tests.rl_core.evaluation.builders import make_items

Validate = Callable[[RunConfig], Validation]
SAMPLED = {"n": 3, "temperature": 0.6, "top_p": 0.95}


def with_mode(config: RunConfig, mode: str, **evaluation: object) -> RunConfig:
    trainer = config.trainer.model_copy(update={"val_mode": mode})
    return config.model_copy(update={"trainer": trainer, "evaluation": config.evaluation.model_copy(update=evaluation)})


@pytest.fixture
def held_out(prepared_run) -> list[Prompt]:
    return PreparedDataset.open(prepared_run.data, "validation")[:6]


@pytest.fixture
def validate(worker, rewards, held_out) -> Validate:
    def run(config: RunConfig) -> Validation:
        return Validator(config=config, prompts=held_out, rewards=rewards, progress=SilentProgress()).run(worker)

    return run


def test_each_of_several_validation_sets_has_an_accuracy():
    items = [replace(item, data_source=name) for item, name in zip(make_items("+-++"), "aabb", strict=True)]
    metrics = Validation(items).metrics
    found = {name: value for name, value in metrics.items() if name.endswith("accuracy")}
    assert found == {"val/accuracy": 0.75, "val/a/accuracy": 0.5, "val/b/accuracy": 1.0}
    assert "val/test/accuracy" not in Validation(make_items("+-")).metrics


@pytest.mark.parametrize("mode", ["greedy", "sampled"])
def test_validation_answers_as_the_evaluation_does_in_that_mode(validate, worker, rewards, held_out, config, mode):
    validated = validate(with_mode(config, mode, **SAMPLED))
    evaluation = with_mode(config, mode, **SAMPLED, modes=(mode,)).evaluation
    with awake_generator(worker):
        (expected,) = evaluate_prompts(
            held_out,
            generate=worker.generate,
            pool=rewards,
            config=evaluation,
            max_response_length=config.rollout.max_response_length,
            run_seed=config.seed,
            progress=SilentProgress(),
        ).values()
    assert list(validated.items) == expected
    assert len(expected) == len(held_out) * (3 if mode == "sampled" else 1)
    assert validated.metrics["val/accuracy"] == sum(item.is_right for item in expected) / len(expected)


def test_prompts_that_the_base_model_has_answered_are_not_asked_before_the_first_step(
    worker, rewards, held_out, config
):
    known = BaseAnswers(key="k", items={"greedy": make_items("+-+")})
    settings = {"prompts": held_out, "rewards": rewards, "progress": SilentProgress(), "base": known}
    assert Validator(config=with_mode(config, "greedy"), **settings).run(worker, step=0).items == make_items("+-+")
    for mode, step in (("greedy", 1), ("sampled", 0)):
        asked = Validator(config=with_mode(config, mode), **settings).run(worker, step=step)
        assert {item.uid for item in asked.items} == {prompt.uid for prompt in held_out}
