"""vLLM's sampler on a CPU, with the random numbers of a request drawn for several of its steps at a time."""

from weakref import WeakKeyDictionary

import torch
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler, apply_top_k_top_p

_DRAWN_AT_A_TIME = 16


class SeedsAhead:
    """The numbers that requests' generators give, one after the other; `len` is the number of generators.

    A generator gives the same numbers one by one and several at a time, and a call for one takes as long as a call for
    several. (`torch.randint` takes one number of the Mersenne Twister for each, as its bound is below 2^32.)
    """

    def __init__(self) -> None:
        # The next number is the last of its list. A request that vLLM puts back for a while keeps its generator.
        self._drawn: WeakKeyDictionary[torch.Generator, list[int]] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._drawn)

    def take(self, generators: dict[int, torch.Generator], batch_size: int) -> torch.Tensor:
        """[batch_size] int64: the next number of each place's generator; 0 at a place that has none."""
        numbers = [0] * batch_size
        for place, generator in generators.items():
            drawn = self._drawn.get(generator)
            if not drawn:
                drawn = self._drawn[generator] = _draw(generator)
            numbers[place] = drawn.pop()
        return torch.tensor(numbers)


def _draw(generator: torch.Generator) -> list[int]:
    numbers: list[int] = torch.randint(0, 2**31, (_DRAWN_AT_A_TIME,), generator=generator).tolist()
    return numbers[::-1]


class SeededSampler(TopKTopPSampler):  # type: ignore[misc]  # vLLM's layers have no types
    """Samples as `TopKTopPSampler` does on a CPU if every request has a generator: by the largest logit with Gumbel
    noise (Gumbel 1954), whose seed is the generator's next number."""

    def __init__(self) -> None:
        super().__init__(logprobs_mode="processed_logprobs")
        self._seeds = SeedsAhead()

    def forward_cpu(
        self,
        logits: torch.Tensor,
        generators: dict[int, torch.Generator],
        k: torch.Tensor | None,
        p: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sampled tokens [B] int64, and the log-probs of all tokens [B, V] float32.

        Args:
            logits: [B, V] float32; with `k` or `p`, tokens that are left out become -inf in it.
            generators: Those of the places of the batch.
            k: [B] how many of the likeliest tokens may be sampled; None for all.
            p: [B] the mass of the likeliest tokens that may be sampled; None for all.
        """
        logits = apply_top_k_top_p(logits, k, p)
        log_probs = logits.log_softmax(dim=-1, dtype=torch.float32)
        seeds = self._seeds.take(generators, len(logits))
        tokens: torch.Tensor = torch.ops._C.fused_gumbel_argmax(logits.to(torch.float32), seeds)
        return tokens, log_probs
