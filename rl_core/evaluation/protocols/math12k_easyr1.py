"""Competition mathematics in text as EasyR1 measures it: the 500 test items of math12k, one sample each."""

from rl_core.evaluation.protocols import easyr1, prompts
from rl_core.evaluation.protocols.protocol import Protocol
from rl_core.sources.columns import Columns
from rl_core.sources.hub import HubSource

MATH12K_EASYR1 = Protocol(
    name="math12k-easyr1@1",
    summary="MATH's 500 test items, answers in a box; EasyR1's validation",
    items=HubSource(type="hub", name="hiyouga/math12k@test"),
    columns=Columns(),
    num_items=500,
    prompt=prompts.BOXED,
    max_prompt_length=easyr1.MAX_PROMPT_LENGTH,
    min_pixels=easyr1.MIN_PIXELS,
    max_pixels=easyr1.MAX_PIXELS,
    answering=easyr1.ANSWERING,
    judging=easyr1.BOXED,
)
