"""The slow reference engine: a plain transformers forward of the whole sequence for every token."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    LogitsProcessorList,
    PreTrainedModel,
    ProcessorMixin,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from rl_core.models.loading import load_processor
from rl_core.models.named_weights import named_hf_weights
from rl_core.models.output_head import BANNED_LOGIT_BIAS
from rl_core.models.pixels import PixelCache
from rl_core.rollout.weight_loading import StrictWeights
from rl_core.types import GenerationRequest, Prompt, Rollout, Sampling
from tests.rl_core.models.plain import plain_inputs

if TYPE_CHECKING:
    from rl_core.data.images import ImageStore


class TransformersEngine:
    """A RolloutEngine without cache, batching or any code of its own for attention, to compare vLLM with.

    Greedy responses are vLLM's; sampled ones come from the same distribution with other noise.
    """

    def __init__(
        self,
        model_folder: Path,
        *,
        dtype: str,
        banned_token_ids: Sequence[int],
        stop_token_ids: Sequence[int],
        image_store: "ImageStore",
    ) -> None:
        processor = load_processor(model_folder)
        has_vision = isinstance(processor, ProcessorMixin)
        self._pixels = PixelCache(processor, image_store)
        self._tokenizer = processor.tokenizer if has_vision else processor
        factory = AutoModelForImageTextToText if has_vision else AutoModelForCausalLM
        model: PreTrainedModel = factory.from_pretrained(
            model_folder, dtype=getattr(torch, dtype), trust_remote_code=False
        )
        self._model = model.eval()
        self._token_ban = torch.zeros(self._model.get_output_embeddings().weight.shape[0])
        self._token_ban[list(banned_token_ids)] = BANNED_LOGIT_BIAS
        self._stop_token_ids = frozenset(stop_token_ids)
        self._policy_version: int | None = None

    @property
    def policy_version(self) -> int | None:
        """Version of the weights last loaded; None before the first load."""
        return self._policy_version

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], *, policy_version: int) -> None:
        """Take every weight under the name `named_hf_weights` gives it. Raises ValueError unless each came once."""
        self._policy_version = None
        own = dict(named_hf_weights(self._model))
        strict = StrictWeights(weights, expected=frozenset(own))
        for name, weight in strict:
            own[name].copy_(weight)
        strict.check()
        self._policy_version = policy_version

    @torch.inference_mode()
    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> Iterator[Rollout]:
        """Yield one rollout a request, one after another. Raises RuntimeError before the first load."""
        if self._policy_version is None:
            raise RuntimeError("the engine has no weights: call load_weights before generate")
        for request in requests:
            yield self._respond(request, sampling, policy_version=self._policy_version)

    def sleep(self) -> None:
        """Nothing: the reference holds no device memory that the trainer could use."""

    def wake(self) -> None:
        """Nothing, as for `sleep`."""

    def close(self) -> None:
        """Nothing: there are no process groups."""

    def _respond(self, request: GenerationRequest, sampling: Sampling, *, policy_version: int) -> Rollout:
        generator = torch.Generator().manual_seed(request.seed)
        response: list[int] = []
        log_probs: list[float] = []
        stopped = False
        while len(log_probs) < sampling.max_tokens and not stopped:
            choices = self._log_probs(request.prompt, response, sampling)
            token = _draw(choices, sampling, generator)
            response.append(token)
            log_probs.append(choices[token].item())
            stopped = token in self._stop_token_ids
        self._pixels.clear()
        return Rollout(
            prompt_uid=request.prompt.uid,
            sample_index=request.sample_index,
            response_ids=np.array(response, dtype=np.int32),
            log_probs=np.array(log_probs, dtype=np.float32),
            text=self._tokenizer.decode(response, skip_special_tokens=True),
            finish_reason="stop" if stopped else "length",
            policy_version=policy_version,
        )

    def _log_probs(self, prompt: Prompt, response: Sequence[int], sampling: Sampling) -> torch.Tensor:
        """[V] float32 log-probs of the next token in the distribution that is sampled from."""
        inputs = plain_inputs(prompt, response, pixels=self._pixels, config=self._model.config)
        logits = self._model(**inputs, use_cache=False, logits_to_keep=1).logits[:, -1].float()
        scores: torch.Tensor = _filters(sampling)(inputs["input_ids"], logits + self._token_ban)
        return scores[0].log_softmax(dim=-1)


def _filters(sampling: Sampling) -> LogitsProcessorList:
    """Temperature, then top-k, then top-p, in vLLM's order; none of them when greedy, as in vLLM."""
    filters = LogitsProcessorList()
    if sampling.temperature > 0:
        filters.append(TemperatureLogitsWarper(sampling.temperature))
        if sampling.top_k > 0:
            filters.append(TopKLogitsWarper(sampling.top_k))
        if sampling.top_p < 1:
            filters.append(TopPLogitsWarper(sampling.top_p))
    return filters


def _draw(log_probs: torch.Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    if sampling.temperature == 0:
        return int(log_probs.argmax())
    return int(torch.multinomial(log_probs.exp(), 1, generator=generator))
