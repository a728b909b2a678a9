"""The validation passes of EasyR1 (`examples/config.yaml` and `workers/reward` of hiyouga/EasyR1): one sample an
item."""

from functools import partial
from typing import Final

from rl_core.evaluation.protocols import prompts
from rl_core.evaluation.protocols.protocol import Answering, Judging, Protocol
from rl_core.sources.columns import Columns
from rl_core.sources.hub import HubSource

_PROTOCOL: Final = partial(
    Protocol,
    columns=Columns(),
    max_prompt_length=2048,
    min_pixels=262_144,
    max_pixels=4_194_304,
    answering=Answering(temperature=0.6, top_p=0.95, n=1, max_response_length=2048),
)

_GRADER_CODE = ("rl_core.rewards.forms", "rl_core.rewards.grading")
_GRADER_PACKAGES = ("mathruler", "pylatexenc", "sympy")

_BOXED: Final = Judging(
    function="math",
    kwargs={"grader": "mathruler"},
    code=("rl_core.rewards.builtin.math", *_GRADER_CODE),
    packages=_GRADER_PACKAGES,
    rule="white space around <, > and / goes; the last \\boxed{} is graded by mathruler; over all items",
)

_TAGGED: Final = Judging(
    function="r1v",
    kwargs={"grader": "mathruler"},
    code=("rl_core.rewards.builtin.r1v", *_GRADER_CODE),
    packages=_GRADER_PACKAGES,
    rule="the first one-line <answer></answer>, else the whole response, is graded by mathruler; over all items",
)

GEO3K_EASYR1 = _PROTOCOL(
    name="geo3k-easyr1@1",
    summary="Geometry3K test items, free-form answers in a box; EasyR1's validation",
    items=HubSource(type="hub", name="hiyouga/geometry3k@test"),
    num_items=601,
    prompt=prompts.BOXED,
    judging=_BOXED,
    categories=("problem_type_graph", "problem_type_goal"),  # in the published item folders, not on the hub
)

CLEVR_COUNT_EASYR1 = _PROTOCOL(
    name="clevr-count-easyr1@1",
    summary="objects counted in CLEVR scenes, answers in tags; EasyR1's validation",
    items=HubSource(type="hub", name="BUAADreamer/clevr_count_70k@test"),
    num_items=200,
    prompt=prompts.TAGGED,
    judging=_TAGGED,
)

GEOQA_EASYR1 = _PROTOCOL(
    name="geoqa-easyr1@1",
    summary="GeoQA test items, answers in tags; EasyR1's validation",
    items=HubSource(type="hub", name="leonardPKU/GEOQA_8K_R1V@test"),
    num_items=None,
    prompt=prompts.TAGGED,
    judging=_TAGGED,
)

MATH12K_EASYR1 = _PROTOCOL(
    name="math12k-easyr1@1",
    summary="MATH's 500 test items, answers in a box; EasyR1's validation",
    items=HubSource(type="hub", name="hiyouga/math12k@test"),
    num_items=500,
    prompt=prompts.BOXED,
    judging=_BOXED,
)
