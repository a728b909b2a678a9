"""The logits processor that bans tokens, beside vLLM's bias of a request."""

import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate
from vllm.v1.sample.logits_processor.builtin import LogitBiasLogitsProcessor

from rl_core.models.output_head import BANNED_LOGIT_BIAS
from rl_core.rollout.token_ban import token_ban


def test_a_ban_is_the_bias_of_every_request() -> None:
    banned, cpu = [3, 4, 17], torch.device("cpu")
    parameters = SamplingParams(logit_bias=dict.fromkeys(banned, BANNED_LOGIT_BIAS))
    theirs = LogitBiasLogitsProcessor(None, cpu, False)
    update = BatchUpdate(batch_size=5, removed=[], added=[(i, parameters, None, []) for i in range(5)], moved=[])
    theirs.update_state(update)
    ours = token_ban(banned)(None, cpu, False)
    ours.update_state(update)
    logits = torch.randn(5, 20, generator=torch.Generator().manual_seed(1))
    assert torch.equal(ours.apply(logits.clone()), theirs.apply(logits.clone()))
    assert not ours.is_argmax_invariant(), "greedy sampling is banned from them too"
