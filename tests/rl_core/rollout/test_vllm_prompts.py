"""What vLLM gets of a prompt equals what its own processor would make of the images."""

import pytest
import torch

from rl_core.families import registry
from tests.rl_core.rollout.engines import DrawnImages


@pytest.mark.parametrize("running", ["qwen2_5_vl", "qwen3_vl", "internvl"], indirect=True)
def test_patches_tokens_and_places_are_those_of_vllms_processor(running):
    """A size that is not a multiple of the patches is scaled, which both must do in the same way."""
    ours = running.engine._running._prompts
    for images in (["84x84-1"], ["84x84-2", "56x140-3"], ["75x101-4", "84x84-1"]):
        prompt = running.policy.prompt("one", images)
        (expected,) = running.engine._engine.renderer.render_cmpl(
            [
                {
                    "prompt_token_ids": prompt.engine_token_ids.tolist(),
                    "multi_modal_data": {"image": [DrawnImages().image(uid) for uid in images]},
                    "multi_modal_uuids": {"image": images},
                }
            ]
        )
        found = ours.render(prompt)
        assert found["prompt_token_ids"] == expected["prompt_token_ids"] == prompt.token_ids.tolist()
        assert found["mm_placeholders"] == expected["mm_placeholders"]
        for item, uid, other in zip(found["mm_kwargs"]["image"], images, expected["mm_kwargs"]["image"], strict=True):
            assert item == other
            values = item["pixel_values"].data
            (trainers,) = ours._pixels.get([uid])
            if registry.FAMILIES[running.policy.family].vision.prepares_images:
                assert values.dtype == torch.uint8
                assert torch.equal(values, trainers.tensors["pixel_values"])
            else:
                given = ours._pixels.forward_inputs([trainers], [], torch.device("cpu"))
                assert torch.equal(values, given["pixel_values"])


@pytest.mark.parametrize("running", ["llama"], indirect=True)
def test_a_text_prompt_is_given_as_its_tokens(running):
    prompt = running.policy.prompt("text")
    found = running.engine._running._prompts.render(prompt)
    assert found == {"type": "token", "prompt_token_ids": prompt.token_ids.tolist()}
