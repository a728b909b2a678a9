"""Sampling with seeds that were drawn ahead, beside vLLM's own."""

import pytest
import torch
from vllm.platforms import current_platform
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

from rl_core.rollout.cpu.sampling import SeededSampler, SeedsAhead

VOCABULARY = 50

current_platform.import_kernels()  # as the start of an engine does


class Request:
    """A request's generator for each of the two samplers."""

    def __init__(self, seed: int) -> None:
        self.ours, self.theirs = (torch.Generator().manual_seed(seed) for _ in range(2))


@pytest.mark.parametrize(("k", "p"), [(None, None), (5, None), (None, 0.7), (5, 0.7)])
def test_tokens_and_log_probs_are_those_of_vllm(k: int | None, p: float | None) -> None:
    """Requests come, go, change places and rest for some steps; each takes more numbers than are drawn at a time."""
    ours, theirs = SeededSampler(), TopKTopPSampler("processed_logprobs")
    requests = [Request(seed) for seed in range(12)]
    generator = torch.Generator().manual_seed(3)
    for step in range(60):
        shown = torch.randperm(len(requests), generator=generator)[: 3 + step % 9].tolist()
        logits = 3 * torch.randn(len(shown), VOCABULARY, generator=generator)
        limits = (
            None if k is None else torch.full((len(shown),), k),
            None if p is None else torch.full((len(shown),), p),
        )
        found = ours(logits.clone(), {place: requests[i].ours for place, i in enumerate(shown)}, *limits)
        expected = theirs(logits.clone(), {place: requests[i].theirs for place, i in enumerate(shown)}, *limits)
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1])
        if step % 20 == 19:
            requests[step % 12] = Request(100 + step)


def test_numbers_are_kept_as_long_as_their_generator() -> None:
    """A request that gives way to others for many steps goes on where it was."""
    seeds, request, expected = SeedsAhead(), torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    numbers = [int(torch.randint(0, 2**31, (1,), generator=expected)) for _ in range(2)]
    assert seeds.take({0: request}, 1).tolist() == numbers[:1]
    for seed in range(50):
        seeds.take({0: torch.Generator().manual_seed(seed)}, 1)
    assert len(seeds) <= 2, "those of the 50 others are gone"
    assert seeds.take({1: request}, 3).tolist() == [0, numbers[1], 0]
