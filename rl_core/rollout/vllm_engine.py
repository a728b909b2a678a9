"""vLLM in this process: one request for each rollout, and rollouts are yielded as they finish."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from rl_core.cpu_switches import CPU_ENGINE
from rl_core.device import takes_cpu_code
from rl_core.distributed.ranks import WHOLE, GeneratorRanks
from rl_core.files import plain_path
from rl_core.models.loading import stop_token_ids
from rl_core.models.pixels import PixelCache
from rl_core.rollout.adapter_loading import AdapterLoader
from rl_core.rollout.engine_spec import EngineSpec
from rl_core.rollout.inflow import Inflow
from rl_core.rollout.prompt_positions import share_prompt_positions
from rl_core.rollout.unnamed_memory import UnnamedMemory, unmapped_bytes, unnamed_memory
from rl_core.rollout.vllm_arguments import engine_arguments
from rl_core.rollout.vllm_executor import take_name_off_shared_memory
from rl_core.rollout.vllm_process import contained_start, prepare_process
from rl_core.rollout.vllm_prompts import PromptRenderer
from rl_core.rollout.vllm_requests import RunningRequests, Sample
from rl_core.rollout.weight_loading import WeightLoader, expected_adapter_names, expected_weights
from rl_core.types import FinishReason, Requests, Rollout, RolloutStream, Sampling

if TYPE_CHECKING:
    from vllm import EngineArgs, LLMEngine

_SECONDS_BETWEEN_LOOKS: Final = 0.005
"""How often it is asked for further requests while none is running."""

_FINISH_REASONS: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


class VllmEngine:
    """vLLM in this process, or the part that this process has of one. Ranks that hold an engine together get the same
    calls in the same order. Each schedules the same requests and samples the same tokens, because all have the logits
    of the whole vocabulary.

    On a GPU, `sleep` drops weights and cache (vLLM's level 2), and `policy_version` is None until weights are loaded
    again. On a CPU there is no device memory to free, and `sleep` and `wake` do nothing.

    Attributes:
        policy_version: Version of the weights; None if there are none.
        has_weights: Whether weights are loaded. With `model.lora.generator_weights: separate`, these are the frozen
            weights, and there is a version only when adapters are loaded, too.
        unmapped_bytes: What torch's allocator counts, and the sleeping engine has given back to the GPU.
    """

    def __init__(self, spec: EngineSpec, pixels: PixelCache, *, ranks: GeneratorRanks = WHOLE) -> None:
        """Start the engine, with the pixels of the prompts' images, or the part of it that these ranks have."""
        prepare_process()
        self._owned = ExitStack()
        model = self._owned.enter_context(plain_path(spec.model))
        arguments = engine_arguments(replace(spec, model=model), ranks=ranks)
        with contained_start():
            self._engine, weight_loader = _started(arguments)
        self._engine.apply_model(share_prompt_positions)
        if ranks.size > 1:
            take_name_off_shared_memory()
        self._config = spec.rollout
        self._ranks = ranks
        self._forgotten: UnnamedMemory | None = None
        if arguments.enable_sleep_mode:
            (self._forgotten,) = self._engine.collective_rpc(unnamed_memory)
        self._is_eager: bool = arguments.enforce_eager
        self._asleep = False
        self.unmapped_bytes = 0
        renderer = PromptRenderer(self._engine, pixels)
        self._running = RunningRequests(
            self._engine, renderer, stop_token_ids=stop_token_ids(spec.model), counts=ranks.is_first
        )
        self._pixels = pixels
        self._tokenizer = self._engine.get_tokenizer()
        self._weights = weight_loader(self._engine, expected=expected_weights(spec.model))
        self._adapters: AdapterLoader | None = None
        if spec.lora is not None:
            adapters = expected_adapter_names(spec.model, spec.lora)
            self._adapters = AdapterLoader(self._engine, spec.lora, expected=adapters)
        self.has_weights = False
        self.policy_version: int | None = None

    @property
    def cached_tokens(self) -> int:
        """Tokens whose keys and values its cache holds at one time."""
        cache = self._engine.vllm_config.cache_config
        return int(cache.num_gpu_blocks * cache.block_size)

    @property
    def layers(self) -> Mapping[str, torch.nn.Module]:
        """[name of a weight] -> the layer of vLLM that took it in the first load; empty before."""
        return self._weights.layers

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], *, policy_version: int) -> None:
        """Load every weight of the model by its name in `named_hf_weights`.

        Raises:
            ValueError: one is missing, unknown or came twice; the engine does not generate before a complete load.
            RuntimeError: requests are still running.
        """
        self._forget_version("load weights")
        self.has_weights = False
        self._weights.load(weights)
        self.has_weights = True
        if self._adapters is None:
            self.policy_version = policy_version

    def load_adapters(self, adapters: Iterable[tuple[str, torch.Tensor]], *, policy_version: int) -> None:
        """The same for the adapters, by their names in `named_adapters`, after the weights."""
        assert self._adapters is not None and self.has_weights, "started with adapters, and loaded"
        self._forget_version("load adapters")
        self._adapters.load(adapters)
        self._running.adapter = self._adapters.request
        self.policy_version = policy_version

    def generate(self, requests: Requests, sampling: Sampling) -> RolloutStream:
        """Yield one rollout for each request, in the order in which they finish. Leaving early aborts the others. Of
        ranks that hold the engine together only the first one yields; where it leaves early, the others end too.

        Log-probs belong to the distribution that is sampled from. Vision and padding tokens are never sampled. Rollouts
        depend on the weights and on the requests (on a CPU to the bit), and not on earlier calls. Other requests, their
        order, and when those of a feed come, change a rollout by no more than rounding (docs/architecture.md, "What
        equal means").

        Raises:
            RuntimeError: an earlier generation was neither finished nor closed.
            ValueError: a prompt cannot be rendered.
        """
        self._refuse_while_running("generate")
        version = self.policy_version
        assert version is not None, "weights are loaded"
        self._drop_caches()
        inflow = Inflow(requests, self._pixels)
        running, lockstep = self._running, Lockstep(self._ranks)
        try:
            while lockstep.goes_on(wanted=self._add(inflow, sampling), offered=inflow.offered()):
                inflow.accept(lockstep.accepted)
                if not running:
                    time.sleep(_SECONDS_BETWEEN_LOOKS)
                    continue
                with lockstep.step():
                    ended = self._step()
                if self._ranks.is_first:
                    for sample, reason in ended:
                        yield self._rollout(sample, reason, policy_version=version)
        finally:
            running.abort()
            lockstep.leave()

    def sleep(self) -> None:
        """Give the device's memory to the trainer."""
        if self._forgotten is not None and not self._asleep:
            self.policy_version, self.has_weights = None, False
            self._forgotten.save()
            self._engine.sleep(level=2)
            self._asleep, self.unmapped_bytes = True, unmapped_bytes()

    def wake(self) -> None:
        """Take the device's memory back."""
        if self._forgotten is not None and self._asleep:
            self._engine.wake_up()
            self._forgotten.restore()
            self._asleep, self.unmapped_bytes = False, 0

    def close(self) -> None:
        """End the engine. vLLM destroys torch's default process group with its own. A sleeping engine takes its memory
        back first, because vLLM's allocator does not expect that memory which it has unmapped is freed (vllm#36651).
        """
        self.policy_version = None
        with self._owned:
            try:
                self.wake()
            finally:
                self._forgotten = None
                self._engine.renderer.shutdown()
                self._engine.engine_core.shutdown()

    def _add(self, inflow: Inflow, sampling: Sampling) -> bool:
        """Add as many requests as are decoded at a time, so that not all pixels are in memory at once. Returns whether
        any are running, or may come."""
        self._running.add(inflow.take(self._config.max_num_seqs - len(self._running)), sampling)
        return bool(self._running) or inflow.is_open

    def _step(self) -> list[tuple[Sample, str]]:
        """With an eager engine all compilation is forbidden, even in the sampler, because it needs a C++ compiler."""
        with torch.compiler.set_stance("force_eager") if self._is_eager else nullcontext():
            return self._running.step()

    def _rollout(self, sample: Sample, reason: str, *, policy_version: int) -> Rollout:
        prompt = sample.request.prompt
        if reason not in _FINISH_REASONS:
            raise RuntimeError(f"vLLM ended a response to prompt {prompt.uid} by {reason!r}")
        return Rollout(
            prompt_uid=prompt.uid,
            sample_index=sample.request.sample_index,
            response_ids=np.array(sample.token_ids, dtype=np.int32),
            log_probs=np.array(sample.log_probs, dtype=np.float32),
            text=self._tokenizer.decode(sample.token_ids, skip_special_tokens=True),
            finish_reason=_FINISH_REASONS[reason],
            policy_version=policy_version,
        )

    def _forget_version(self, what: str) -> None:
        """Before a change of weights: there is no version until it is whole."""
        self._refuse_while_running(what)
        self.policy_version = None

    def _drop_caches(self) -> None:
        """Drop the features of images and the keys and values of prompts. They may be those of older weights, and what
        an earlier call has left decides how many rows are computed together, on which rounding depends."""
        self._engine.reset_encoder_cache()
        if not self._engine.reset_prefix_cache():
            raise RuntimeError("vLLM kept its prefix cache, though no request is running")

    def _refuse_while_running(self, what: str) -> None:
        if self._running:
            raise RuntimeError(
                f"cannot {what} while {len(self._running)} requests are running: finish or close the earlier generation"
            )


class Lockstep:
    """One generation, as a rank of the generator sees it.

    An engine step is one computation of all ranks, so each would wait for ever for a rank that has left. Therefore all
    of them say before every step whether they go on, and a rank that leaves early says once more that it does not.

    Attributes:
        accepted: How many further requests all of them had before the step.
    """

    def __init__(self, ranks: GeneratorRanks) -> None:
        self._ranks = ranks
        self._is_left = False
        self.accepted = 0

    def goes_on(self, *, wanted: bool, offered: int = 0) -> bool:
        """Whether the ranks take another step: if all want it. Otherwise the generation has ended. This one has
        `offered` so many further requests."""
        agreed = self._ranks.least(1 + offered if wanted else 0)
        self._is_left, self.accepted = agreed == 0, max(0, agreed - 1)
        return not self._is_left

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around an engine step. If it fails, the others may be in the middle of it, and cannot be asked to end."""
        try:
            yield
        except BaseException:
            self._is_left = True
            raise

    def leave(self) -> None:
        """Leave the generation. Where it has not ended yet, the other ranks end it before their next step."""
        if not self._is_left:
            self.goes_on(wanted=False)


def _started(arguments: "EngineArgs") -> tuple["LLMEngine", type[WeightLoader]]:
    """vLLM, and the class that loads its weights."""
    from rl_core.rollout.private_classes import use_private_classes

    use_private_classes()
    if takes_cpu_code(CPU_ENGINE):
        from rl_core.rollout.cpu.start import start

        return start(arguments)
    from vllm import LLMEngine

    return LLMEngine.from_engine_args(arguments), WeightLoader
