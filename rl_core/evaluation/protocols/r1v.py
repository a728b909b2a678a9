"""The two evaluation scripts of R1-V (`src/eval` of Deep-Agent/R1-V): greedy."""

from functools import partial
from pathlib import Path
from typing import Final

from rl_core.evaluation.protocols import prompts
from rl_core.evaluation.protocols.protocol import Answering, Judging, Protocol
from rl_core.sources.columns import Columns

_SCORERS: Final = Path(__file__).parent / "scorers"
_SCORERS_PACKAGE: Final = f"{__package__}.scorers"

_PROTOCOL: Final = partial(
    Protocol,
    items=None,
    # Columns of the published prompt files. An item is one image and a question without a placeholder for it.
    columns=Columns(prompt_key="question", image_key="image_path", images_first=True, answer_key="ground_truth"),
    max_prompt_length=8192,  # the scripts have no limit; no published item comes near this one
    # The defaults of qwen-vl-utils and of the Qwen2-VL processor, which the scripts do not change.
    min_pixels=4 * 28 * 28,
    max_pixels=16_384 * 28 * 28,
)

SUPERCLEVR_R1V = _PROTOCOL(
    name="superclevr-r1v@1",
    summary="objects counted in 200 SuperCLEVR scenes; R1-V's out-of-domain evaluation",
    num_items=200,
    prompt=prompts.FIRST_THOUGHTS_THEN_NUMBER,
    answering=Answering(temperature=0.0, max_response_length=256),
    judging=Judging(
        function=f"{_SCORERS / 'superclevr_r1v.py'}:compute_score",
        kwargs={},
        code=(f"{_SCORERS_PACKAGE}.superclevr_r1v",),
        packages=(),
        rule="the first <answer> with digits alone equals the truth as a whole number; no such answer is wrong; "
        "over all items",
    ),
)

GEOQA_R1V = _PROTOCOL(
    name="geoqa-r1v@1",
    summary="754 GeoQA test items, free-form answers; R1-V's evaluation",
    num_items=754,
    prompt=prompts.THOUGHTS_AND_NUMBER,
    answering=Answering(temperature=0.0, max_response_length=1024),
    judging=Judging(
        function=f"{_SCORERS / 'geoqa_r1v.py'}:compute_score",
        kwargs={},
        code=(f"{_SCORERS_PACKAGE}.geoqa_r1v",),
        # R1-V's numbers are of math-verify 0.5.2 with latex2sympy2_extended 1.0.6.
        packages=("math-verify", "latex2sympy2_extended", "sympy"),
        rule="math-verify finds the whole response equal to the truth, tags or none; over all items",
    ),
)
