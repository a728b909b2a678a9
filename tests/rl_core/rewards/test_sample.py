import pickle
from dataclasses import asdict, replace

import numpy as np

from rl_core.image_sizes import ImageSizes
from rl_core.rewards.sample import RewardSample
from rl_core.types import Insertion, ToolCall
from tests.rl_core.builders import make_prompt, make_rollout

SIZES = (ImageSizes(original=(300, 120), shown=(140, 56)),)


def test_a_sample_of_a_rollout_holds_plain_values_of_both():
    prompt = replace(make_prompt("p7"), image_uids=("i1",), image_sizes=SIZES, extra={"level": 3})
    sample = RewardSample.of(prompt, make_rollout("p7", index=2, length=4), step=5)
    assert sample == RewardSample(
        response="1",
        ground_truth="1",
        response_length=4,
        prompt="?",
        question="?",
        data_source="test",
        prompt_uid="p7",
        sample_index=2,
        image_uids=("i1",),
        image_sizes=SIZES,
        extra={"level": 3},
        response_ids=[0, 1, 2, 3],
        finish_reason="stop",
        step=5,
        turns=({"role": "assistant", "content": "1"},),
    )
    assert all(type(token) is int for token in sample.response_ids)
    assert pickle.loads(pickle.dumps(sample)) == sample


def test_a_sample_has_the_turns_of_its_conversation_and_the_last_one_is_the_response():
    call = ToolCall(name="zoom", arguments="{}", result="[image one]", outcome="answered")
    ids = np.zeros(1, np.int32)
    put = Insertion(after=2, token_ids=ids, engine_token_ids=ids, turn="Look.", image_uids=("one",), calls=(call,))
    sample = RewardSample.of(make_prompt(), replace(make_rollout("p", length=4), insertions=(put,)), step=1)
    assert sample.response == "1"
    assert sample.turns == (
        {"role": "assistant", "content": "Look."},
        {"role": "tool", "calls": [asdict(call)], "image_uids": ["one"]},
        {"role": "assistant", "content": "1"},
    )


def test_a_written_response_has_no_tokens():
    sample = RewardSample.of_text(make_prompt(), "<answer>1</answer>")
    assert (sample.response, sample.response_length, list(sample.response_ids)) == ("<answer>1</answer>", 0, [])
