"""The reference engine, against plain forwards and against its own promises."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rl_core.models.named_weights import named_hf_weights
from rl_core.types import Sampling
from tests.rl_core.rollout.engines import (
    MAX_RESPONSE_LENGTH,
    TinyPolicy,
    assert_first_tokens_follow_the_distribution,
    assert_same_rollouts,
    by_key,
    load_tiny_policy,
    make_requests,
    perturbed,
    start_transformers,
    training_sampling,
)
from tests.rl_core.rollout.transformers_engine import TransformersEngine


@pytest.fixture(scope="module")
def policy(tiny_folders: dict[str, Path]) -> TinyPolicy:
    return load_tiny_policy("qwen2_5_vl", tiny_folders["qwen2_5_vl"])


@pytest.fixture
def engine(policy: TinyPolicy) -> TransformersEngine:
    engine = start_transformers(policy)
    engine.load_weights(named_hf_weights(policy.model), policy_version=4)
    return engine


def test_log_probs_are_those_of_one_forward_over_the_whole_sequence(
    engine: TransformersEngine, policy: TinyPolicy
) -> None:
    prompts = {prompt.uid: prompt for prompt in policy.prompts()}
    for rollout in engine.generate(make_requests(list(prompts.values()), 2), training_sampling(0.6)):
        expected = policy.log_probs(prompts[rollout.prompt_uid], rollout.response_ids.tolist(), temperature=0.6)
        np.testing.assert_allclose(rollout.log_probs, expected, rtol=0, atol=2e-5)
        assert rollout.policy_version == 4
        assert (rollout.finish_reason == "stop") == (rollout.response_ids[-1] in policy.stop_ids)


def test_sampling_follows_the_distribution(engine: TransformersEngine, policy: TinyPolicy) -> None:
    assert_first_tokens_follow_the_distribution(engine, policy)


def test_a_rollout_depends_on_its_request_alone(engine: TransformersEngine, policy: TinyPolicy) -> None:
    requests = make_requests(policy.prompts(), 2)
    together = by_key(engine.generate(requests, training_sampling()))
    assert_same_rollouts(by_key(engine.generate(requests[::-1], training_sampling())), together)


def test_weights_change_the_rollouts_and_come_back(engine: TransformersEngine, policy: TinyPolicy) -> None:
    requests = make_requests(policy.prompts()[-1:], 1)
    (before,) = engine.generate(requests, training_sampling())
    engine.load_weights(perturbed(policy.model, scale=0.5), policy_version=5)
    (spoiled,) = engine.generate(requests, training_sampling())
    engine.load_weights(named_hf_weights(policy.model), policy_version=4)
    assert_same_rollouts(by_key(engine.generate(requests, training_sampling())), {before.key: before})
    assert spoiled.log_probs[0] != before.log_probs[0]


def test_a_banned_token_is_never_sampled(engine: TransformersEngine, policy: TinyPolicy) -> None:
    prompt = policy.prompt("short", question="How many?")
    own = dict(named_hf_weights(policy.model))
    head = own["lm_head.weight"].clone()
    head[policy.model.config.image_token_id] = policy.head_row_in_favour(prompt, logit=30.0)
    engine.load_weights((own | {"lm_head.weight": head}).items(), policy_version=5)
    for temperature in (0.0, 1.0):
        for rollout in engine.generate(make_requests([prompt], 4), training_sampling(temperature)):
            assert not np.isin(rollout.response_ids, policy.banned).any()


def test_candidate_filters_give_the_log_probs_of_what_is_left(engine: TransformersEngine, policy: TinyPolicy) -> None:
    prompt = policy.prompt("short", question="How many?")
    requests = make_requests([prompt], 8)
    sampling = Sampling(temperature=0.6, max_tokens=1, top_k=2)
    logits = policy.first_logits(prompt)
    logits[list(policy.banned)] -= 100
    best = logits.topk(2)
    expected = dict(zip(best.indices.tolist(), (best.values / 0.6).log_softmax(dim=0).tolist(), strict=True))
    drawn = [(int(r.response_ids[0]), float(r.log_probs[0])) for r in engine.generate(requests, sampling)]
    assert {token for token, _ in drawn} == set(expected)
    assert all(log_prob == pytest.approx(expected[token], abs=1e-4) for token, log_prob in drawn)
    greedy = Sampling(temperature=0.0, max_tokens=MAX_RESPONSE_LENGTH)
    certain = Sampling(temperature=0.6, max_tokens=MAX_RESPONSE_LENGTH, top_p=1e-6)
    for first, second in zip(engine.generate(requests, greedy), engine.generate(requests, certain), strict=True):
        np.testing.assert_array_equal(first.response_ids, second.response_ids)


def test_generation_before_a_whole_load_is_refused(policy: TinyPolicy) -> None:
    engine = start_transformers(policy)
    requests = make_requests(policy.prompts(), 1)
    with pytest.raises(RuntimeError, match="call load_weights before generate"):
        next(engine.generate(requests, training_sampling()))
    weights = dict(named_hf_weights(policy.model))
    del weights["lm_head.weight"]
    with pytest.raises(ValueError, match=r"1 missing \(lm_head.weight\)"):
        engine.load_weights(weights.items(), policy_version=1)
    assert engine.policy_version is None


def test_the_engines_weights_are_its_own(engine: TransformersEngine, policy: TinyPolicy) -> None:
    requests = make_requests(policy.prompts()[:1], 1)
    before = by_key(engine.generate(requests, training_sampling()))
    trained = load_tiny_policy(policy.family, policy.folder)
    engine.load_weights(named_hf_weights(trained.model), policy_version=4)
    with torch.no_grad():
        trained.model.get_output_embeddings().weight.zero_()
    assert_same_rollouts(by_key(engine.generate(requests, training_sampling())), before)
