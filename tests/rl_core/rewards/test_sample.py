import pickle
from dataclasses import replace

from rl_core.image_sizes import ImageSizes
from rl_core.rewards.sample import RewardSample
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
    )
    assert all(type(token) is int for token in sample.response_ids)
    assert pickle.loads(pickle.dumps(sample)) == sample


def test_a_written_response_has_no_tokens():
    sample = RewardSample.of_text(make_prompt(), "<answer>1</answer>")
    assert (sample.response, sample.response_length, list(sample.response_ids)) == ("<answer>1</answer>", 0, [])
