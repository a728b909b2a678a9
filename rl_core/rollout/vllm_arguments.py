"""The engine arguments of vLLM, each with its reason."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedConfig

from rl_core.config.training import RolloutConfig
from rl_core.distributed.ranks import WHOLE, GeneratorRanks
from rl_core.families.registry import family_of
from rl_core.models.loading import banned_token_ids, load_architecture, load_processor
from rl_core.models.output_head import BANNED_LOGIT_BIAS
from rl_core.planning.meta_model import heads_of_layers
from rl_core.rollout.adapter_loading import adapter_arguments
from rl_core.rollout.engine_spec import EngineSpec
from rl_core.rollout.vllm_executor import executor_of
from rl_core.rollout.weight_loading import expected_adapter_names

if TYPE_CHECKING:
    from vllm import EngineArgs
    from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor

# Prompt tokens of one forward pass; vLLM's own default on GPUs of up to 80 GB.
_TOKENS_PER_FORWARD = 8192

# Smallest cache block of the CPU attention kernel. The rollouts of a prompt share whole blocks only, so short prompts
# share none if blocks are large: 512 rollouts of 35-token prompts start 3 times faster than with vLLM's 128.
_CPU_BLOCK_TOKENS = 32


def token_ban(token_ids: Sequence[int]) -> "type[LogitsProcessor]":
    """A logits processor that bans these tokens in every request. A request's own `logit_bias` does the same, but vLLM
    puts the biases of all requests together again whenever one of them ends.

    vLLM has two model runners with a form of logits processors each, and chooses a runner by platform, model and
    environment. The class has both forms.
    """
    from vllm.v1.sample.logits_processor import LogitsProcessor
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as SecondRunnersProcessor

    # On the host, because the second runner makes its processors in the device memory that a sleeping engine drops.
    # Pinned, because the copy of every step must not wait for the GPU.
    banned = torch.tensor(list(token_ids), dtype=torch.int64, pin_memory=torch.cuda.is_available())

    class TokenBan(LogitsProcessor, SecondRunnersProcessor):  # type: ignore[misc]  # vLLM's classes have no types
        def __init__(self, *_: Any) -> None:
            """Keep nothing of what the runner gives: its config, and its device or the states of its requests."""

        def is_argmax_invariant(self) -> bool:
            return False

        def update_state(self, batch_update: "BatchUpdate | None") -> None:
            """All requests are alike."""

        def apply(self, logits: torch.Tensor, *_: Any) -> torch.Tensor:
            """[B, V] float32 logits, which are changed in place. The second runner adds the batch's layout."""
            logits[:, banned.to(logits.device, non_blocking=True)] += BANNED_LOGIT_BIAS
            return logits

    return TokenBan


def engine_arguments(spec: EngineSpec, *, ranks: GeneratorRanks = WHOLE) -> "EngineArgs":
    """vLLM's arguments for an engine, or for the part of one that these ranks hold together."""
    from vllm import EngineArgs
    from vllm.platforms import current_platform

    config, folder = spec.rollout, spec.model
    max_model_len = spec.max_prompt_length + config.max_response_length
    tokens_per_forward = max(max_model_len, config.max_num_seqs, _TOKENS_PER_FORWARD)
    architecture = load_architecture(folder)
    family = family_of({"model_type": architecture.model_type})
    arguments: dict[str, Any] = {
        "model": str(folder),
        "dtype": spec.dtype,
        # Not "dummy", which also fills buffers (the vision tower's pixel statistics) that no later load writes.
        "load_format": "auto",
        "seed": spec.seed % 2**32,  # vLLM seeds numpy too, which takes no more bits
        "max_model_len": max_model_len,
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": tokens_per_forward,
        # On a CPU, a seeded request whose prompt is computed in two chunks fails ("does not use offset").
        "enable_chunked_prefill": False,
        "enable_prefix_caching": family.engine.prefix_caching,
        "enforce_eager": config.is_eager(on_gpu=not current_platform.is_cpu()),
        # Log-probs of the distribution that is sampled from, with token ban and temperature.
        "logprobs_mode": "processed_logprobs",
        # Only the sampling settings of the request apply, not those of the folder's generation config.
        "generation_config": "vllm",
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
    }
    if (vision := family.vision) is not None:
        # At least one image: with zero, vLLM builds no vision tower, and the sync of its weights fails.
        arguments["limit_mm_per_prompt"] = {"image": max(1, spec.images_per_prompt), "video": spec.videos_per_prompt}
        # The vision tower would normalise videos with the mean and deviation of the image processor, and the video
        # processor may have others.
        arguments["mm_device_do_normalize"] = vision.prepares_images and spec.videos_per_prompt == 0
        arguments["mm_processor_cache_gb"] = 0  # the patches come from the trainer's cache
        # A forward pass shows no more tokens of images than this, however large a single one may be.
        largest = max(tokens_per_forward, 5 * spec.max_prompt_length // 4)
        arguments |= vision.engine_arguments(load_processor(folder), architecture, tokens=largest)
    if spec.dtype == "bfloat16":
        # As the trainer has it (rl_core.models.replaced_layers): rounded logits are a part of what the two differ by.
        arguments["hf_overrides"] = {"head_dtype": "float32"}
    if current_platform.is_cpu():
        needed = cpu_cache_bytes(
            architecture.get_text_config(), spec.dtype, ranks.size, sequences=config.max_num_seqs, longest=max_model_len
        )
        arguments |= _cpu_arguments(config, cache_bytes=needed)
    else:
        arguments |= {"gpu_memory_utilization": config.gpu_share, "enable_sleep_mode": True}
    if banned := banned_token_ids(folder):
        arguments["logits_processors"] = [token_ban(banned)]
    if spec.lora is not None:
        arguments |= adapter_arguments(spec.lora, expected_adapter_names(folder, spec.lora))
    if ranks.size > 1:
        arguments |= _tensor_parallel_arguments(ranks)
    return EngineArgs(**arguments)


def _tensor_parallel_arguments(ranks: GeneratorRanks) -> dict[str, Any]:
    """Each rank has a scheduler of its own, and all of them come to the same decisions, with asynchronous scheduling
    too: what a step has sampled is known when the step after the next is scheduled, neither earlier nor later."""
    return {
        "tensor_parallel_size": ranks.size,
        "distributed_executor_backend": executor_of(ranks),
        # It needs a process that sees the devices of all ranks, but each of ours may see only its own one.
        "disable_custom_all_reduce": True,
        "compilation_config": {"pass_config": {"fuse_allreduce_rms": False}},  # with FlashInfer's all-reduce
    }


def _cpu_arguments(config: RolloutConfig, *, cache_bytes: int) -> dict[str, Any]:
    """A cache no larger than the running sequences can fill, because vLLM fills all of it with zeros at the start."""
    return {
        "kv_cache_memory_bytes": min(config.cpu_kv_cache_gib * 2**30, cache_bytes),
        "block_size": _CPU_BLOCK_TOKENS,
        "skip_mm_profiling": True,  # the profile would size a GPU's memory
    }


def cpu_cache_bytes(text: PreTrainedConfig, dtype: str, ranks: int, *, sequences: int, longest: int) -> int:
    """Bytes of vLLM's cache on a CPU that so many sequences of `longest` tokens fill."""
    kinds = list(getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers)
    states, attending = kinds.count("linear_attention"), len(kinds) - kinds.count("linear_attention")
    token_bytes = cache_bytes_per_token(text, dtype=dtype, ranks=ranks)
    if not states:
        return token_bytes * _CPU_BLOCK_TOKENS * (1 + sequences * math.ceil(longest / _CPU_BLOCK_TOKENS))
    # A block has room for a state, too. vLLM gives blocks to groups of equally many layers, as many as the rarer kind
    # has; a group with fewer layers has as many blocks.
    token_bytes //= len(kinds)
    block_tokens = _CPU_BLOCK_TOKENS * math.ceil(_state_bytes(text, dtype, ranks) / (_CPU_BLOCK_TOKENS * token_bytes))
    together = max(1, min(states, attending))
    blocks = math.ceil(states / together) + math.ceil(attending / together) * math.ceil(longest / block_tokens)
    return token_bytes * block_tokens * together * (1 + sequences * blocks)


def _state_bytes(text: PreTrainedConfig, dtype: str, ranks: int) -> int:
    """Bytes that a layer with a gated delta rule keeps of a sequence: the state in float32, and what its convolution
    still sees."""
    keys, values = (
        getattr(text, f"linear_num_{kind}_heads") * getattr(text, f"linear_{kind}_head_dim") // ranks
        for kind in ("key", "value")
    )
    seen = (2 * keys + values) * (text.linear_conv_kernel_dim - 1) * getattr(torch, dtype).itemsize
    return int(4 * values * text.linear_key_head_dim + seen)


def cache_bytes_per_token(text: PreTrainedConfig, *, dtype: str, ranks: int) -> int:
    """Bytes that a rank of the engine keeps of the keys and values of one token, were every layer to attend as the one
    with most of them. With fewer key/value heads than ranks, several ranks keep the same one."""
    number_bytes: int = getattr(torch, dtype).itemsize
    largest = max(max(1, heads.key_values // ranks) * heads.size for heads in heads_of_layers(text))
    return int(2 * text.num_hidden_layers * largest * number_bytes)
