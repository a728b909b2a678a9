"""Counting in CLEVR scenes as EasyR1's script measures it: the 200 test items of clevr_count_70k, one sample each."""

from rl_core.evaluation.protocols import easyr1, prompts
from rl_core.evaluation.protocols.protocol import Protocol
from rl_core.sources.columns import Columns
from rl_core.sources.hub import HubSource

CLEVR_COUNT_EASYR1 = Protocol(
    name="clevr-count-easyr1@1",
    summary="objects counted in CLEVR scenes, answers in tags; EasyR1's validation",
    items=HubSource(type="hub", name="BUAADreamer/clevr_count_70k@test"),
    columns=Columns(),
    num_items=200,
    prompt=prompts.TAGGED,
    max_prompt_length=easyr1.MAX_PROMPT_LENGTH,
    min_pixels=easyr1.MIN_PIXELS,
    max_pixels=easyr1.MAX_PIXELS,
    answering=easyr1.ANSWERING,
    judging=easyr1.TAGGED,
)
