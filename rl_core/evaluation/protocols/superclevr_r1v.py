"""Counting in SuperCLEVR as R1-V measures it: 200 items, greedy, whole numbers in tags."""

from rl_core.evaluation.protocols import prompts, r1v
from rl_core.evaluation.protocols.protocol import Answering, Judging, Protocol

SUPERCLEVR_R1V = Protocol(
    name="superclevr-r1v@1",
    summary="objects counted in 200 SuperCLEVR scenes; R1-V's out-of-domain evaluation",
    items=None,
    columns=r1v.COLUMNS,
    num_items=200,
    prompt=prompts.FIRST_THOUGHTS_THEN_NUMBER,
    max_prompt_length=r1v.MAX_PROMPT_LENGTH,
    min_pixels=r1v.MIN_PIXELS,
    max_pixels=r1v.MAX_PIXELS,
    answering=Answering(temperature=0.0, max_response_length=256),
    judging=Judging(
        function=f"{r1v.SCORERS / 'superclevr_r1v.py'}:compute_score",
        kwargs={},
        code=(f"{r1v.SCORERS_PACKAGE}.superclevr_r1v",),
        packages=(),
        rule="the first <answer> with digits alone equals the truth as a whole number; no such answer is wrong; "
        "over all items",
    ),
)
