"""The logits processor that bans tokens, and vLLM's bias of a request."""

import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate
from vllm.v1.sample.logits_processor import LogitsProcessor as FirstRunnersProcessor
from vllm.v1.sample.logits_processor.builtin import LogitBiasLogitsProcessor
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as SecondRunnersProcessor
from vllm.v1.worker.gpu.sample.logits_processor import build_custom_logits_processors_params_validator

from rl_core.models.output_head import BANNED_LOGIT_BIAS
from rl_core.rollout.vllm_arguments import token_ban

BANNED = [3, 4, 17]


def _logits() -> torch.Tensor:
    return torch.randn(5, 20, generator=torch.Generator().manual_seed(1))


def test_a_ban_is_the_bias_of_every_request():
    cpu = torch.device("cpu")
    parameters = SamplingParams(logit_bias=dict.fromkeys(BANNED, BANNED_LOGIT_BIAS))
    theirs = LogitBiasLogitsProcessor(None, cpu, False)
    update = BatchUpdate(batch_size=5, removed=[], added=[(i, parameters, None, []) for i in range(5)], moved=[])
    theirs.update_state(update)
    ours = token_ban(BANNED)(None, cpu, False)
    ours.update_state(update)
    assert torch.equal(ours.apply(_logits()), theirs.apply(_logits()))
    assert not ours.is_argmax_invariant(), "greedy sampling is banned from them too"


def test_both_of_vllms_model_runners_take_the_ban():
    ban = token_ban(BANNED)
    assert issubclass(ban, FirstRunnersProcessor)
    assert issubclass(ban, SecondRunnersProcessor)
    build_custom_logits_processors_params_validator([ban])(SamplingParams())
    first, second = ban(None, torch.device("cpu"), False), ban(None, None)
    assert second.add_request(0, SamplingParams()), "the second runner skips processors that no request needs"
    assert torch.equal(second.apply(_logits(), None), first.apply(_logits()))
    assert not vars(second), "what it had made itself, a sleep of level 2 would drop"
