"""Positions of a prompt, asked for by each of its requests."""

import pytest
import torch
from vllm import SamplingParams
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.v1.core.sched.output import NewRequestData
from vllm.v1.request import Request

from rl_core.rollout.prompt_positions import LastAnswer
from tests.rl_core.rollout.engines import make_requests, training_sampling


def _compute(tokens: list[int], features: list[object]) -> tuple[torch.Tensor, int]:
    return torch.tensor([len(tokens), len(features)]), sum(tokens)


def _image(uid: str, offset: int) -> MultiModalFeatureSpec:
    place = PlaceholderRange(offset=offset, length=2)
    return MultiModalFeatureSpec(data=None, modality="image", identifier=uid, mm_position=place)


def test_only_the_same_tokens_and_images_get_the_last_answer():
    remembered, tokens = LastAnswer(_compute), [1, 2]
    questions = [
        (tokens, [_image("a", 0)]),
        (tokens, [_image("a", 0)]),
        ([1, 3], [_image("a", 0)]),
        (tokens, [_image("a", 0)]),
        (tokens, []),
        (tokens, [_image("b", 0)]),
        (tokens, [_image("b", 1)]),
        (tokens, [_image("b", 1)]),
    ]
    for question in questions:
        positions, delta = remembered(*question)
        assert (positions.tolist(), delta) == (_compute(*question)[0].tolist(), sum(question[0]))
    assert remembered.computed == 6, "the second and the last question repeat the one before"


def test_requests_share_the_answer_though_each_adds_its_samples_to_a_list_of_its_own():
    """As the second model runner asks: with all tokens that a request has when it begins."""
    remembered, prompt = LastAnswer(_compute), [1, 2]
    for number in range(3):
        request = Request(str(number), prompt, SamplingParams(), None)
        begun = NewRequestData.from_request(request, ([0],), request._all_token_ids, uses_mrope=True)
        assert remembered(begun.prefill_token_ids, [])[1] == 3
        request.append_output_token_ids(number)
    assert remembered.computed == 1
    assert remembered(request._all_token_ids, [])[1] == 5, "a request that is put back begins with its samples"


@pytest.mark.parametrize("running", ["qwen2_5_vl", "qwen3_vl"], indirect=True)
def test_the_requests_of_a_prompt_ask_once(running):
    running.sync()
    (answers,) = running.engine._engine.apply_model(lambda model: model.get_mrope_input_positions)
    before, prompts = answers.computed, running.policy.prompts()
    running.generate(make_requests(prompts, 3), training_sampling())
    assert answers.computed - before == len(prompts)
