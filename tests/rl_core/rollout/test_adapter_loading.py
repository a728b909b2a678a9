"""vLLM computes with frozen weights and adapters what transformers does, on the real engine. pytest runs this module
before those that share engines, which it could not have besides its own."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from rl_core.config.model import LoraConfig
from rl_core.models.named_weights import ADAPTER, named_adapters, named_hf_weights
from rl_core.models.trained_part import attach_lora
from tests.rl_core.rollout.engines import (
    FAMILIES,
    Running,
    TinyPolicy,
    load_tiny_policy,
    make_requests,
    start_vllm,
    training_sampling,
)

LORA = LoraConfig(rank=3, alpha=5.0, generator_weights="separate")
"""vLLM reserves memory for a rank of 8."""


@pytest.fixture(
    scope="module",
    params=[family if family == "qwen2_5_vl" else pytest.param(family, marks=pytest.mark.slow) for family in FAMILIES],
)
def adapted(request, tiny_folders) -> Iterator[Running]:
    policy = load_tiny_policy(request.param, tiny_folders[request.param])
    attach_lora(policy.model, LORA, run_seed=1)
    engine = start_vllm(policy, lora=LORA)
    yield Running(policy=policy, engine=engine)
    engine.close()


def train(policy: TinyPolicy, *, seed: int) -> None:
    """Adapters of noise, as if they had been trained for long."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in policy.model.named_parameters():
        if ADAPTER in name:
            parameter.data = 0.3 * torch.randn(parameter.shape, generator=generator)


def gap(adapted: Running) -> float:
    """The largest difference of a log-prob from that of transformers."""
    prompts = {prompt.uid: prompt for prompt in adapted.policy.prompts()}
    rollouts = adapted.generate(make_requests([*prompts.values()], 2), training_sampling())
    assert len(rollouts) == 2 * len(prompts)
    return max(
        np.abs(
            rollout.log_probs
            - adapted.policy.log_probs(prompts[rollout.prompt_uid], rollout.response_ids.tolist(), temperature=1.0)
        ).max()
        for rollout in rollouts.values()
    )


def test_adapters_are_loaded_beside_weights_that_stay(adapted):
    engine, model = adapted.engine, adapted.policy.model
    with pytest.raises(AssertionError, match="and loaded"):
        engine.load_adapters(named_adapters(model), policy_version=1)
    train(adapted.policy, seed=1)
    engine.load_weights(named_hf_weights(model, merged=False), policy_version=1)
    assert engine.has_weights and engine.policy_version is None
    engine.load_adapters(named_adapters(model), policy_version=1)
    assert engine.policy_version == 1
    assert gap(adapted) < 5e-5
    train(adapted.policy, seed=2)
    assert gap(adapted) > 1e-2, "the control: other adapters are another policy"
    engine.load_adapters(named_adapters(model), policy_version=2)
    assert engine.policy_version == 2
    assert gap(adapted) < 5e-5


def test_a_load_that_is_not_whole_is_refused_and_blocks_generation(adapted):
    model = adapted.policy.model
    adapted.engine.load_weights(named_hf_weights(model, merged=False), policy_version=3)
    (name, matrix), *others = named_adapters(model)
    with pytest.raises(ValueError, match=r"1 missing .*; 1 unknown"):
        adapted.engine.load_adapters([*others, (f"{name}s", matrix)], policy_version=3)
    assert adapted.engine.policy_version is None
    with pytest.raises(AssertionError, match="weights are loaded"):
        adapted.generate(make_requests(adapted.policy.prompts(), 1), training_sampling())
