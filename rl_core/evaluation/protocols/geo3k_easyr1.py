"""Geometry3K as EasyR1's baselines measure it: accuracy on the 601 test items, one sample each."""

from rl_core.evaluation.protocols import easyr1, prompts
from rl_core.evaluation.protocols.protocol import Protocol
from rl_core.sources.columns import Columns
from rl_core.sources.hub import HubSource

GEO3K_EASYR1 = Protocol(
    name="geo3k-easyr1@1",
    summary="Geometry3K test items, free-form answers in a box; EasyR1's validation",
    items=HubSource(type="hub", name="hiyouga/geometry3k@test"),
    columns=Columns(),
    num_items=601,
    prompt=prompts.BOXED,
    max_prompt_length=easyr1.MAX_PROMPT_LENGTH,
    min_pixels=easyr1.MIN_PIXELS,
    max_pixels=easyr1.MAX_PIXELS,
    answering=easyr1.ANSWERING,
    judging=easyr1.BOXED,
    categories=("problem_type_graph", "problem_type_goal"),  # in the published item folders, not on the hub
)
