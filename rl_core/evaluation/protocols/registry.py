"""The published protocols by name. Their prompts are in our own words; the answer formats are the published ones."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from rl_core.evaluation.protocols.protocol import Answering, Judging, Protocol
from rl_core.sources.columns import Columns
from rl_core.sources.hub import HubSource
from rl_core.user_code.function import nearest

# The texts of configs/prompts/math.jinja and r1v.jinja: a model is measured with the prompt that it was trained with.
BOXED: Final = (
    "{{ content }}\n"
    "Before you answer, work the problem out step by step inside <think> and </think>. "
    "After that, state your result once, inside \\boxed{}."
)
TAGGED: Final = (
    "{{ content }}\n"
    "Write your reasoning between <think> and </think>, then nothing but the result between <answer> and </answer>."
)

# The validation passes of EasyR1 (`examples/config.yaml` and `workers/reward` of hiyouga/EasyR1): one sample an item.
_EASYR1: Final = partial(
    Protocol,
    columns=Columns(),
    max_prompt_length=2048,
    min_pixels=262_144,
    max_pixels=4_194_304,
    answering=Answering(temperature=0.6, top_p=0.95, n=1, max_response_length=2048),
)
_MATHRULER: Final = partial(Judging, kwargs={"grader": "mathruler"}, packages=("mathruler", "pylatexenc", "sympy"))
_BOXED_ANSWER: Final = _MATHRULER(
    function="math",
    rule="white space around <, > and / goes; the last \\boxed{} is graded by mathruler; over all items",
)
_TAGGED_ANSWER: Final = _MATHRULER(
    function="r1v",
    rule="the first one-line <answer></answer>, else the whole response, is graded by mathruler; over all items",
)

GEO3K_EASYR1: Final = _EASYR1(
    name="geo3k-easyr1@1",
    summary="Geometry3K test items, free-form answers in a box; EasyR1's validation",
    items=HubSource(type="hub", name="hiyouga/geometry3k@test"),
    num_items=601,
    prompt=BOXED,
    judging=_BOXED_ANSWER,
    categories=("problem_type_graph", "problem_type_goal"),  # in the published item folders, not on the hub
)

CLEVR_COUNT_EASYR1: Final = _EASYR1(
    name="clevr-count-easyr1@1",
    summary="objects counted in CLEVR scenes, answers in tags; EasyR1's validation",
    items=HubSource(type="hub", name="BUAADreamer/clevr_count_70k@test"),
    num_items=200,
    prompt=TAGGED,
    judging=_TAGGED_ANSWER,
)

GEOQA_EASYR1: Final = _EASYR1(
    name="geoqa-easyr1@1",
    summary="GeoQA test items, answers in tags; EasyR1's validation",
    items=HubSource(type="hub", name="leonardPKU/GEOQA_8K_R1V@test"),
    num_items=None,
    prompt=TAGGED,
    judging=_TAGGED_ANSWER,
)

MATH12K_EASYR1: Final = _EASYR1(
    name="math12k-easyr1@1",
    summary="MATH's 500 test items, answers in a box; EasyR1's validation",
    items=HubSource(type="hub", name="hiyouga/math12k@test"),
    num_items=500,
    prompt=BOXED,
    judging=_BOXED_ANSWER,
)

# The two evaluation scripts of R1-V (`src/eval` of Deep-Agent/R1-V): greedy.
_R1V: Final = partial(
    Protocol,
    items=None,
    # Columns of the published prompt files. An item is one image and a question without a placeholder for it.
    columns=Columns(prompt_key="question", image_key="image_path", images_first=True, answer_key="ground_truth"),
    max_prompt_length=8192,  # the scripts have no limit; no published item comes near this one
    # The defaults of qwen-vl-utils and of the Qwen2-VL processor, which the scripts do not change.
    min_pixels=4 * 28 * 28,
    max_pixels=16_384 * 28 * 28,
)

SUPERCLEVR_R1V: Final = _R1V(
    name="superclevr-r1v@1",
    summary="objects counted in 200 SuperCLEVR scenes; R1-V's out-of-domain evaluation",
    num_items=200,
    prompt="{{ content }} Think first, between <think> and </think>; then give the final answer, a number, between "
    "<answer> and </answer>.",
    answering=Answering(temperature=0.0, max_response_length=256),
    judging=Judging(
        function=f"{Path(__file__).with_name('superclevr_r1v.py')}:compute_score",
        rule="the first <answer> with digits alone equals the truth as a whole number; no such answer is wrong; "
        "over all items",
    ),
)

GEOQA_R1V: Final = _R1V(
    name="geoqa-r1v@1",
    summary="754 GeoQA test items, free-form answers; R1-V's evaluation",
    num_items=754,
    prompt="{{ content }} Put your thinking between <think> and </think>, and the final answer, a number, between "
    "<answer> and </answer>.",
    answering=Answering(temperature=0.0, max_response_length=1024),
    judging=Judging(
        function=f"{Path(__file__).with_name('geoqa_r1v.py')}:compute_score",
        # R1-V's numbers are of math-verify 0.5.2 with latex2sympy2_extended 1.0.6.
        packages=("math-verify", "latex2sympy2_extended", "sympy"),
        rule="math-verify finds the whole response equal to the truth, tags or none; over all items",
    ),
)

# This project's own, of configs/word_problems.
WORD_PROBLEMS: Final = Protocol(
    name="word-problems@1",
    summary="arithmetic word problems in sentences that are not trained on; of configs/word_problems/problems.py",
    items=None,
    columns=Columns(),
    num_items=200,
    prompt="{{ content }} Reply with the number inside <answer></answer>.",
    max_prompt_length=96,
    min_pixels=3136,  # of no meaning without images, and the defaults
    max_pixels=4_194_304,
    answering=Answering(temperature=1.0, top_p=0.95, n=2, max_response_length=48),
    judging=Judging(function="count", rule="the number in <answer></answer> is the truth; over all items"),
)

PROTOCOLS: Final[Mapping[str, Protocol]] = {
    protocol.name: protocol
    for protocol in (
        GEO3K_EASYR1,
        CLEVR_COUNT_EASYR1,
        GEOQA_EASYR1,
        MATH12K_EASYR1,
        SUPERCLEVR_R1V,
        GEOQA_R1V,
        WORD_PROBLEMS,
    )
}


def protocol_named(name: str) -> Protocol:
    """Look up a protocol by its name and version. Raises ValueError with the most similar name, or with all names."""
    if name in PROTOCOLS:
        return PROTOCOLS[name]
    raise ValueError(f"there is no evaluation protocol {name!r}{nearest(name, PROTOCOLS)}")
