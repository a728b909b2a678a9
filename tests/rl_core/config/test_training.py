"""Temperatures that vLLM would replace or refuse are refused before it is asked; graphs are for GPUs; when it is
validated."""

import pytest
from pydantic import ValidationError

from rl_core.config.model import ModelConfig, TinyModel
from rl_core.config.stages import EvaluationConfig
from rl_core.config.training import ActorConfig, CriticConfig, RolloutConfig, StopAt, TrainerConfig
from rl_core.section import problems_in


@pytest.mark.parametrize(
    ("section", "allowed", "refused"),
    [
        (RolloutConfig, [0.01, 1.0, 2.0], [-1.0, 0.0, 0.001, 0.0099, 2.1]),
        (EvaluationConfig, [0.0, 0.01, 0.6, 2.0], [-1.0, 0.001, 0.0099, 2.1]),
    ],
)
def test_a_temperature_is_one_that_vllm_samples_at(section, allowed, refused):
    for temperature in allowed:
        section(temperature=temperature)
    for temperature in refused:
        with pytest.raises(ValidationError, match="temperature"):
            section(temperature=temperature)


@pytest.mark.parametrize(
    ("val_freq", "before", "steps"),
    [(-1, True, []), (3, True, [0, 3, 6]), (3, False, [3, 6]), (1, False, [1, 2, 3, 4, 5, 6, 7])],
)
def test_held_out_prompts_are_answered_every_so_many_steps(val_freq, before, steps):
    trainer = TrainerConfig(val_freq=val_freq, val_before_train=before)
    assert [step for step in range(8) if trainer.validates_at(step)] == steps


@pytest.mark.parametrize(
    ("metric", "val_freq", "words"),
    [
        ("val/accuracy", 2, None),
        ("val/failed", 1, None),
        ("reward/anything", -1, None),
        ("response_length/mean", -1, None),
        ("val/accuracy", -1, "never validates"),
        ("val/acuracy", 2, "did you mean `val/accuracy`?"),
        ("accuracy", 2, "did you mean `val/accuracy`?"),
        ("valid/reward", 2, "did you mean `val/reward`?"),
    ],
)
def test_a_metric_that_ends_the_training_is_one_that_is_measured(metric, val_freq, words):
    trainer = TrainerConfig(val_freq=val_freq, stop_at=StopAt(metric=metric, value=0.9))
    found = [problem for problem in problems_in(trainer) if problem.fatal]
    assert [problem.where for problem in found] == ([] if words is None else ["stop_at.metric"])
    assert words is None or words in found[0].what


@pytest.mark.parametrize("owner", [ActorConfig, CriticConfig])
def test_auto_counts_as_the_value_of_a_cpu_until_it_is_resolved(owner):
    """Digests of runs before `auto` was there rest on these numbers."""
    assert (owner().update_sequences, owner().experience_sequences) == (4, 16)
    given = owner(micro_batch_size_per_device_for_update=3, micro_batch_size_per_device_for_experience=5)
    assert (given.update_sequences, given.experience_sequences) == (3, 5)
    model = ModelConfig(source=TinyModel(type="tiny"))
    assert not model.recomputes_activations
    assert model.model_copy(update={"gradient_checkpointing": True}).recomputes_activations
    assert RolloutConfig().gpu_share == 0.6
    assert RolloutConfig(gpu_memory_utilization=0.3).gpu_share == 0.3
    assert TrainerConfig().offloads == "none"
    assert TrainerConfig(offload="all").offloads == "all"


@pytest.mark.parametrize("share", [0.0, 1.0, "automatic"])
def test_a_share_of_a_gpu_is_a_number_between_0_and_1_or_auto(share):
    with pytest.raises(ValidationError, match="gpu_memory_utilization"):
        RolloutConfig(gpu_memory_utilization=share)
