"""GeoQA as EasyR1's script measures it, one sample each."""

from rl_core.evaluation.protocols import easyr1, prompts
from rl_core.evaluation.protocols.protocol import Protocol
from rl_core.sources.columns import Columns
from rl_core.sources.hub import HubSource

GEOQA_EASYR1 = Protocol(
    name="geoqa-easyr1@1",
    summary="GeoQA test items, answers in tags; EasyR1's validation",
    items=HubSource(type="hub", name="leonardPKU/GEOQA_8K_R1V@test"),
    columns=Columns(),
    num_items=None,
    prompt=prompts.TAGGED,
    max_prompt_length=easyr1.MAX_PROMPT_LENGTH,
    min_pixels=easyr1.MIN_PIXELS,
    max_pixels=easyr1.MAX_PIXELS,
    answering=easyr1.ANSWERING,
    judging=easyr1.TAGGED,
)
