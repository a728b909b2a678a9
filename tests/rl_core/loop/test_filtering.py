"""The filter looks at one component of each group's scores."""

import re

from rl_core.algorithms.filters import BoundsFilter
from rl_core.loop.filtering import informative_groups, too_few
from rl_core.types import Score
from tests.rl_core.builders import make_group


def test_groups_between_the_bounds_of_the_named_component_pass_in_their_order() -> None:
    groups = [make_group(uid) for uid in ("solved", "half", "failed", "other")]
    accuracy = {"solved": (1.0, 1.0), "half": (0.0, 1.0), "failed": (0.0, 0.0), "other": (1.0, 0.0)}
    scores = {
        (uid, index): Score(components={"overall": 0.5, "accuracy": value})
        for uid, pair in accuracy.items()
        for index, value in enumerate(pair)
    }
    passed = informative_groups(groups, scores, BoundsFilter(filter_key="accuracy"))
    assert [group.prompt.uid for group in passed] == ["half", "other"]
    assert informative_groups(groups, scores, BoundsFilter(filter_key="overall")) == groups


def test_the_error_says_what_was_found_and_what_to_do() -> None:
    filtering = BoundsFilter(filter_key="accuracy", max_try_make_batch=3)
    message = str(too_few(found=2, wanted=8, prompts=24, filtering=filtering))
    assert re.search(r"3 draws .* of 24 .* gave 2 of 8 .* mean of accuracy is above 0.01 and below 0.99", message)
