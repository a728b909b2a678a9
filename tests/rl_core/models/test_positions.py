"""Position ids of a prompt are those that transformers computes for the plain sequence."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from rl_core.families.mrope import VisionRun, mrope_positions
from rl_core.models.loading import load_model
from tests.rl_core.models.builders import PATCH_GRIDS, model_config

IMAGE, VIDEO, TEXT = 9, 8, 1
MERGE = 2

grids = st.tuples(
    st.just(1), st.integers(1, 4).map(lambda side: side * MERGE), st.integers(1, 4).map(lambda s: s * MERGE)
)


@pytest.fixture(scope="module")
def backbone_of(model_folder) -> Callable[[str], PreTrainedModel]:
    return cache(lambda family: load_model(model_folder(family), model_config(model_folder(family))).base_model)


@pytest.mark.parametrize("family", PATCH_GRIDS)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(images=st.lists(grids, max_size=3), texts=st.lists(st.integers(1, 5), min_size=4, max_size=4))
def test_positions_are_those_of_transformers(family, images, texts, backbone_of):
    expected = np.tile(np.arange(texts[0]), (3, 1))
    token_ids = np.array([TEXT] * texts[0], np.int32)
    for grid, length in zip(images, texts[1:], strict=False):
        run = [IMAGE] * (int(np.prod(grid)) // MERGE**2)
        token_ids = np.concatenate([token_ids, np.array(run + [TEXT] * length, np.int32)])
    if images:
        tokens = torch.from_numpy(token_ids).long()[None]
        expected = (
            backbone_of(family)
            .get_rope_index(tokens, mm_token_type_ids=(tokens == IMAGE).int(), image_grid_thw=torch.tensor(images))[0][
                :, 0
            ]
            .numpy()
        )
    actual = mrope_positions(token_ids, {IMAGE: [VisionRun(grid) for grid in images]}, merge_size=MERGE)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("images", [[], [(1, 2, 2)], [(1, 4, 4), (1, 2, 2)]])
def test_image_tokens_that_no_image_explains_are_refused(images):
    with pytest.raises(ValueError, match=r"4 placeholders .token 9."):
        mrope_positions(
            np.array([TEXT] + [IMAGE] * 4 + [TEXT], np.int32),
            {IMAGE: [VisionRun(grid) for grid in images]},
            merge_size=MERGE,
        )


def test_a_video_counts_its_steps_in_intervals_and_the_text_goes_on_after_the_last():
    """Qwen2.5-VL's own example: two steps of time, a second apart, at two positions a second."""
    token_ids = np.array([TEXT, VIDEO, VIDEO, VIDEO, VIDEO, TEXT, IMAGE, TEXT], np.int32)
    runs = {IMAGE: [VisionRun((1, 2, 2))], VIDEO: [VisionRun((4, 2, 2), interval=2.5)]}
    actual = mrope_positions(token_ids, runs, merge_size=MERGE)
    assert actual[0].tolist() == [0, 1, 1 + 2, 1 + 5, 1 + 7, 9, 10, 11]
    assert actual[1].tolist() == actual[2].tolist() == [0, 1, 1, 1, 1, 9, 10, 11]
