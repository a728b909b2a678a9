"""GeoQA as R1-V measures it: 754 items, greedy, the whole response graded by math-verify."""

from rl_core.evaluation.protocols import prompts, r1v
from rl_core.evaluation.protocols.protocol import Answering, Judging, Protocol

GEOQA_R1V = Protocol(
    name="geoqa-r1v@1",
    summary="754 GeoQA test items, free-form answers; R1-V's evaluation",
    items=None,
    columns=r1v.COLUMNS,
    num_items=754,
    prompt=prompts.THOUGHTS_AND_NUMBER,
    max_prompt_length=r1v.MAX_PROMPT_LENGTH,
    min_pixels=r1v.MIN_PIXELS,
    max_pixels=r1v.MAX_PIXELS,
    answering=Answering(temperature=0.0, max_response_length=1024),
    judging=Judging(
        function=f"{r1v.SCORERS / 'geoqa_r1v.py'}:compute_score",
        kwargs={},
        code=(f"{r1v.SCORERS_PACKAGE}.geoqa_r1v",),
        # R1-V's numbers are of math-verify 0.5.2 with latex2sympy2_extended 1.0.6.
        packages=("math-verify", "latex2sympy2_extended", "sympy"),
        rule="math-verify finds the whole response equal to the truth, tags or none; over all items",
    ),
)
