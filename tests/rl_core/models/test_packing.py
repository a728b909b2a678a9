"""What is refused of a packed sequence; what is in it, test_plain.py says."""

from dataclasses import replace

import pytest

from rl_core.models.packing import TreeInput
from tests.rl_core.models.builders import Bench


def test_a_prompt_whose_tokens_do_not_fit_its_image_is_named(model_folder):
    bench = Bench.load(model_folder("qwen2_5_vl"))
    good = bench.tree([1, 1], ["tall-1"], [1], seed=7)
    prompt = bench.prompt([1, 1], ["wide-1"], seed=7)
    bad = TreeInput(prompt=replace(prompt, image_uids=("tall-1",)), responses=good.responses)
    with pytest.raises(
        ValueError, match=r"prompt 'prompt-7': 12 placeholders .token \d+., but its images or videos make 4"
    ):
        bench.pack([bad])
