"""What is in a packed sequence, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from rl_core.models.packing import PackedTrees, TreeInput, pack_trees
from tests.rl_core.models.builders import Bench


@pytest.fixture(scope="module")
def bench(model_folder: Callable[[str], Path]) -> Bench:
    return Bench.load(model_folder("qwen2_5_vl"))


def pack(bench: Bench, trees: list[TreeInput]) -> PackedTrees:
    return pack_trees(trees, pixels=bench.pixels, model_config=bench.policy.config, device=torch.device("cpu"))


def test_each_target_is_predicted_by_the_token_before_it_in_its_own_branch(bench: Bench) -> None:
    trees = [bench.tree([4], [], [3, 1, 2], seed=1), bench.tree([2], [], [2], seed=2)]
    packed = pack(bench, trees)
    place = 0
    for tree in trees:
        for response in tree.responses:
            branch = np.concatenate([tree.prompt.token_ids, response])
            predictors = packed.logit_index[place : place + len(response)]
            targets = packed.targets[place : place + len(response)]
            assert packed.input_ids[0, predictors].tolist() == branch[len(tree.prompt.token_ids) - 1 : -1].tolist()
            assert targets.tolist() == response.tolist()
            place += len(response)
    assert place == len(packed.targets) == len(packed.logit_index)


def test_the_last_token_of_a_response_is_no_input(bench: Bench) -> None:
    packed = pack(bench, [bench.tree([4], [], [3, 1], seed=1)])
    assert packed.input_ids.shape == (1, 4 + 2 + 0)


def test_a_response_continues_at_the_largest_position_of_its_prompt(bench: Bench) -> None:
    tree = bench.tree([3, 2], ["wide-1"], [4, 3])
    packed = pack(bench, [tree])
    length = len(tree.prompt.token_ids)
    largest = packed.position_ids[:, 0, :length].max()
    assert largest < length - 1  # an image takes fewer positions than tokens
    for start, inputs in ((length, 3), (length + 3, 2)):
        expected = torch.arange(largest + 1, largest + 1 + inputs).expand(3, -1)
        assert torch.equal(packed.position_ids[:, 0, start : start + inputs], expected)


def test_images_come_in_the_order_of_the_trees(bench: Bench) -> None:
    trees = [bench.tree([1, 1], ["tall-1"], [1]), bench.tree([2], [], [1]), bench.tree([1, 1], ["wide-1"], [2])]
    packed = pack(bench, trees)
    images = bench.pixels.get(["tall-1", "wide-1"])
    assert packed.image_grid_thw is not None and packed.pixel_values is not None
    assert packed.image_grid_thw.tolist() == [list(image.grid_thw) for image in images]
    assert torch.equal(packed.pixel_values, bench.pixels.normalised(torch.cat([image.values for image in images])))


def test_without_images_there_are_no_pixels(bench: Bench) -> None:
    packed = pack(bench, [bench.tree([3], [], [2])])
    assert packed.pixel_values is None and packed.image_grid_thw is None


def test_text_models_count_positions_in_one_row(model_folder: Callable[[str], Path]) -> None:
    text = Bench.load(model_folder("llama"))
    packed = pack(text, [text.tree([3], [], [3, 2])])
    assert packed.position_ids.tolist() == [[0, 1, 2, 3, 4, 3]]


def test_a_prompt_whose_tokens_do_not_fit_its_image_is_named(bench: Bench) -> None:
    good = bench.tree([1, 1], ["tall-1"], [1], seed=7)
    prompt = bench.prompt([1, 1], ["wide-1"], seed=7)
    bad = TreeInput(
        prompt=type(prompt)(**{name: getattr(prompt, name) for name in prompt.__slots__} | {"image_uids": ("tall-1",)}),
        responses=good.responses,
    )
    with pytest.raises(
        ValueError, match=r"prompt 'prompt-7': 12 placeholders .token \d+., but its images or videos make 4"
    ):
        pack(bench, [bad])
