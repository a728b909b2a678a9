"""vLLM against transformers, for every family, on the real engine."""

from dataclasses import replace

import numpy as np
import pytest

from rl_core.models.named_weights import named_hf_weights
from rl_core.models.pixels import PixelCache
from rl_core.progress import TALLY, Tally
from rl_core.types import Sampling
from tests.rl_core.models.plain import greedy_response
from tests.rl_core.rollout.engines import (
    MAX_NUM_SEQS,
    MAX_RESPONSE_LENGTH,
    QUESTION,
    DrawnImages,
    assert_first_tokens_follow_the_distribution,
    assert_same_rollouts,
    make_requests,
    training_sampling,
)
from tests.rl_core.rollout.feeds import dripping

GREEDY = Sampling(temperature=0.0, max_tokens=MAX_RESPONSE_LENGTH)
only_qwen2_5_vl = pytest.mark.parametrize("running", ["qwen2_5_vl"], indirect=True)
"""For what does not depend on the family."""


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probs_are_those_of_transformers(synced, temperature):
    prompts = {prompt.uid: prompt for prompt in synced.policy.prompts()}
    rollouts = synced.generate(make_requests(list(prompts.values()), 4), training_sampling(temperature))
    assert len(rollouts) == 4 * len(prompts)
    for rollout in rollouts.values():
        expected = synced.policy.log_probs(
            prompts[rollout.prompt_uid], rollout.response_ids.tolist(), temperature=temperature
        )
        np.testing.assert_allclose(rollout.log_probs, expected, rtol=0, atol=2e-5, err_msg=str(rollout.key))
        assert rollout.policy_version == 1


def test_greedy_responses_are_those_of_transformers(synced):
    policy = synced.policy
    pixels = PixelCache(policy.folder, DrawnImages())
    tokenizer = policy.processor.tokenizer if policy.has_vision else policy.processor
    requests = make_requests(policy.prompts(), 1)
    rollouts = synced.generate(requests, GREEDY)
    for request in requests:
        rollout = rollouts[request.prompt.uid, 0]
        expected = greedy_response(
            policy.model,
            request.prompt,
            pixels=pixels,
            banned=policy.banned,
            stops=policy.stop_ids,
            longest=MAX_RESPONSE_LENGTH,
        )
        assert rollout.response_ids.tolist() == expected, request.prompt.uid
        assert rollout.text == tokenizer.decode(expected, skip_special_tokens=True)
        log_probs = policy.log_probs(request.prompt, expected, temperature=1.0)
        np.testing.assert_allclose(rollout.log_probs, log_probs, rtol=0, atol=2e-5)


@only_qwen2_5_vl
def test_a_rollout_depends_on_its_request_alone(synced):
    # Only long sequences tempt the attention kernel to share one of them between threads.
    long = [synced.policy.prompt(f"long {n}", ["84x84-1"], question=QUESTION * n) for n in (8, 16, 26)]
    requests = make_requests([*synced.policy.prompts(), *long], 8)
    together = synced.generate(requests, training_sampling())
    assert_same_rollouts(synced.generate(requests[::-1], training_sampling()), together)
    alone = {
        key: rollout for one in requests[::5] for key, rollout in synced.generate([one], training_sampling()).items()
    }
    assert_same_rollouts(alone, {key: together[key] for key in alone})


@only_qwen2_5_vl
@pytest.mark.parametrize("pause", [0.0, 0.02])
def test_requests_that_come_in_the_middle_are_answered_as_those_of_one_list(synced, pause):
    """Also where none is left to be generated meanwhile."""
    requests = make_requests(synced.policy.prompts(), 4)
    together = synced.generate(requests, training_sampling())
    feed = dripping(requests, at_first=3 if pause else 0, pause=pause)
    assert_same_rollouts(synced.generate(feed, training_sampling()), together)


@only_qwen2_5_vl
def test_sampling_follows_the_distribution(synced):
    assert_first_tokens_follow_the_distribution(synced.engine, synced.policy)


@only_qwen2_5_vl
def test_a_banned_token_is_never_sampled_however_likely(synced):
    prompt = synced.policy.prompt("one image", ["84x84-1"])
    image_pad = synced.policy.model.config.image_token_id
    own = dict(named_hf_weights(synced.policy.model))
    head = own["lm_head.weight"].clone()
    head[image_pad] = synced.policy.head_row_in_favour(prompt, logit=30.0)
    others = synced.policy.first_logits(prompt)
    assert others.max() < 20, "the control: without a ban the token is as good as certain"
    synced.engine.load_weights((own | {"lm_head.weight": head}).items(), policy_version=2)
    for temperature in (0.0, 0.6, 1.0):
        rollouts = synced.generate(make_requests([prompt], 16), training_sampling(temperature))
        sampled = {int(token) for rollout in rollouts.values() for token in rollout.response_ids}
        assert not sampled & set(synced.policy.banned)


@only_qwen2_5_vl
def test_rollouts_are_yielded_as_they_finish(synced, monkeypatch):
    steps = 0
    core = synced.engine._engine.engine_core
    step = core.get_output

    def counted():
        nonlocal steps
        steps += 1
        return step()

    monkeypatch.setattr(core, "get_output", counted)
    requests = make_requests(synced.policy.prompts(), 40)[:MAX_NUM_SEQS]  # all start in the first step
    finished = [(steps, len(rollout.response_ids)) for rollout in synced.engine.generate(requests, training_sampling())]
    assert all(step == length for step, length in finished), "a rollout was held back"
    assert finished[0][1] < MAX_RESPONSE_LENGTH, "the control: one of them ended early"


@only_qwen2_5_vl
def test_responses_end_at_a_stop_token_or_at_the_limit(synced):
    stops = synced.policy.stop_ids
    rollouts = synced.generate(make_requests(synced.policy.prompts(), 40), training_sampling())
    for rollout in rollouts.values():
        assert not np.isin(rollout.response_ids[:-1], stops).any()
        assert (rollout.finish_reason == "stop") == (rollout.response_ids[-1] in stops)
        assert rollout.finish_reason == "stop" or len(rollout.response_ids) == MAX_RESPONSE_LENGTH
    assert {rollout.finish_reason for rollout in rollouts.values()} == {"stop", "length"}


@only_qwen2_5_vl
def test_an_iteration_left_early_leaves_nothing_behind(synced):
    requests = make_requests(synced.policy.prompts(), 8)
    tally = TALLY.copy()
    before = synced.generate(requests, training_sampling())
    tokens = sum(len(rollout.response_ids) for rollout in before.values())
    assert TALLY.since(tally) == Tally(responses=len(requests), sampled=tokens)
    stream = synced.engine.generate(requests, training_sampling())
    next(stream)
    assert 0 < TALLY.since(tally).under_way < tokens
    stream.close()
    assert TALLY.since(tally).under_way == 0
    assert synced.engine._engine.engine_core.engine_core.scheduler.get_num_unfinished_requests() == 0
    assert_same_rollouts(synced.generate(requests, training_sampling()), before)


@only_qwen2_5_vl
def test_a_second_generation_or_a_load_within_a_running_one_is_refused(synced):
    requests = make_requests(synced.policy.prompts(), 8)
    stream = synced.engine.generate(requests, training_sampling())
    next(stream)
    with pytest.raises(RuntimeError, match=r"cannot generate while .* requests are running"):
        next(synced.engine.generate(requests, training_sampling()))
    with pytest.raises(RuntimeError, match="cannot load weights while"):
        synced.sync()
    assert len(list(stream)) == len(requests) - 1


@only_qwen2_5_vl
def test_a_load_that_is_not_whole_is_refused_and_blocks_generation(synced):
    requests = make_requests(synced.policy.prompts(), 2)
    before = synced.generate(requests, training_sampling())
    weights = dict(named_hf_weights(synced.policy.model))
    lost = "model.language_model.layers.1.mlp.down_proj.weight"
    weights["model.layers.1.mlp.down_proj.weight"] = weights.pop(lost)
    with pytest.raises(ValueError, match=f"1 missing .{lost}.; 1 unknown .model.layers.1.mlp.down_proj.weight."):
        synced.engine.load_weights(weights.items(), policy_version=3)
    assert synced.engine.policy_version is None
    with pytest.raises(AssertionError, match="weights are loaded"):
        next(synced.engine.generate(requests, training_sampling()))
    synced.sync()
    assert_same_rollouts(synced.generate(requests, training_sampling()), before)


@only_qwen2_5_vl
def test_a_prompt_whose_images_do_not_fit_is_named(synced):
    fitting = synced.policy.prompt("one image", ["84x84-1"])
    cases = {
        "tokens": (fitting, {"token_ids": np.delete(fitting.token_ids, 5)}, "tokens for the trainer and"),
        "larger image": (fitting, {"image_uids": ("84x112-1",)}, "tokens for the trainer and"),
        "two images": (fitting, {"image_uids": ("84x84-1", "84x84-2")}, "1 image placeholder.s. for vLLM and 2 image"),
        "no image": (fitting, {"image_uids": ()}, "1 image placeholder.s. for vLLM and 0 image"),
    }
    for uid, (prompt, changes, message) in cases.items():
        with pytest.raises(ValueError, match=f"prompt {uid} has .*{message}"):
            synced.generate(make_requests([replace(prompt, uid=uid, **changes)], 2), training_sampling())
    assert len(synced.generate(make_requests([fitting], 2), training_sampling())) == 2


@only_qwen2_5_vl
def test_evaluation_may_filter_candidates(synced):
    requests = make_requests(synced.policy.prompts(), 2)
    greedy = synced.generate(requests, GREEDY)
    sampling = Sampling(temperature=0.6, max_tokens=MAX_RESPONSE_LENGTH, top_p=1e-6)
    for key, rollout in synced.generate(requests, sampling).items():
        np.testing.assert_array_equal(rollout.response_ids, greedy[key].response_ids)
        np.testing.assert_array_equal(rollout.log_probs, 0.0)
