"""The requests that vLLM works on, added to its core and read from it."""

from collections.abc import Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from rl_core.progress import TALLY
from rl_core.rollout.vllm_prompts import PromptRenderer
from rl_core.types import GenerationRequest, Prompt, Sampling

if TYPE_CHECKING:
    from vllm import LLMEngine, SamplingParams
    from vllm.lora.request import LoRARequest
    from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """A request, and the tokens and log-probs that vLLM has sampled for it so far."""

    request: GenerationRequest
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)

    def extend(self, output: "EngineCoreOutput") -> None:
        """Add the tokens of one engine step."""
        self.token_ids.extend(output.new_token_ids)
        assert output.new_logprobs is not None, "every request asks for the log-probs of its tokens"
        self.log_probs.extend(output.new_logprobs.logprobs[:, 0].tolist())  # the first column is the sampled token


class RunningRequests:
    """The requests that vLLM's core is working on; `len` is their number.

    They go to the core itself and not through `LLMEngine.add_request` and `LLMEngine.step`: these would check and copy
    a prompt for each of its n samples, and make several Python objects for each sampled token, in order to detokenise
    and stream what is needed here only as a whole. The core gets the same requests either way. `adapter` is what they
    name to be computed with the engine's adapters. What is sampled `counts` at one of the ranks that hold the engine
    together.
    """

    def __init__(
        self,
        engine: "LLMEngine",
        prompts: PromptRenderer,
        *,
        stop_token_ids: Sequence[int],
        counts: bool,
    ) -> None:
        self.adapter: LoRARequest | None = None
        self._engine = engine
        self._core = engine.engine_core
        self._prompts = prompts
        self._stop_token_ids = list(stop_token_ids)
        self._ids = map(str, count())
        self._samples: dict[str, Sample] = {}
        self._counts = counts
        self._last: tuple[Prompt, Sampling, EngineCoreRequest] | None = None

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, requests: Iterable[GenerationRequest], sampling: Sampling) -> None:
        """Pass requests to vLLM. Raises ValueError, see `PromptRenderer.render`."""
        for request in requests:
            request_id = next(self._ids)
            self._core.add_request(self._core_request(request_id, request, sampling))
            self._samples[request_id] = Sample(request=request)

    def step(self) -> list[tuple[Sample, str]]:
        """Sample the next token of every running request. Returns those that have ended, each with vLLM's reason:
        "stop", "length", or what must not happen."""
        ended = []
        sampled = 0
        for output in self._core.get_output().outputs:
            sample = self._samples.get(output.request_id)
            if sample is None:
                continue  # aborted while its step was under way
            if output.new_token_ids:
                sample.extend(output)
                sampled += len(output.new_token_ids)
            if output.finish_reason is not None:
                ended.append((sample, str(output.finish_reason)))
                del self._samples[output.request_id]
        self._count(sampled, [sample for sample, _ in ended])
        return ended

    def abort(self) -> None:
        """End every running request."""
        self._core.abort_requests(list(self._samples))
        self._count(0, self._samples.values(), finished=False)
        self._samples.clear()
        self._last = None

    def _count(self, sampled: int, gone: Collection[Sample], *, finished: bool = True) -> None:
        """Count the tokens of a step, and the samples that are under way no longer."""
        if self._counts:
            TALLY.sampled += sampled
            TALLY.under_way += sampled - sum(len(sample.token_ids) for sample in gone)
            TALLY.responses += len(gone) if finished else 0

    def _core_request(self, request_id: str, request: GenerationRequest, sampling: Sampling) -> "EngineCoreRequest":
        made = copy(self._template(request.prompt, sampling))
        assert made.sampling_params is not None
        made.request_id = request_id
        made.sampling_params = copy(made.sampling_params)
        made.sampling_params.seed = request.seed
        return made

    def _template(self, prompt: Prompt, sampling: Sampling) -> "EngineCoreRequest":
        """The prompt's request, checked by vLLM; kept, because the n requests of a prompt follow each other."""
        if self._last is None or self._last[0] is not prompt or self._last[1] != sampling:
            template = self._engine.input_processor.process_inputs(
                "template",
                self._prompts.render(prompt),
                self._parameters(sampling),
                lora_request=self.adapter,
                supported_tasks=self._engine.get_supported_tasks(),
            )
            self._last = (prompt, sampling, template)
        return self._last[2]

    def _parameters(self, sampling: Sampling) -> "SamplingParams":
        """The parameters of every request, but for the seed, which is replaced in each."""
        from vllm import SamplingParams

        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            seed=0,
            logprobs=0,  # of the sampled token only
            stop_token_ids=self._stop_token_ids,
            ignore_eos=True,  # only the stop tokens above count
            detokenize=False,
            skip_clone=True,  # these parameters are made for one prompt, so vLLM need not copy them
        )
