"""EasyR1's `worker` section: actor, critic, rollout, reference, reward."""

from dataclasses import replace

from sightline_tools.easyr1.conversions import (
    eager,
    engine_format,
    frozen_vision_tower,
    longest_sequence,
    lora_rank,
    lora_targets,
    loss_type,
    number_format,
    offload,
    or_zero,
    sharding,
    stored_format,
    validation_sampling,
    warmup_ratio,
    warmup_steps,
    when_lora,
    when_loss_reads,
)
from sightline_tools.easyr1.files import checkpoint, names_accuracy, reward_function, reward_type
from sightline_tools.easyr1.key import Difference, Key, converted, missing, needless, same, unless, where
from sightline_tools.easyr1.keys_critic import CRITIC

_PACKED = "Sequences are always packed into a token budget, each group's prompt once."
_WARM_UP = "The rate rises with every optimizer step, from above 0; in EasyR1 once in a training step, from 0."

_FSDP: tuple[Key, ...] = (
    needless("fsdp.enable_full_shard", True, "No number depends on it."),
    missing("fsdp.enable_cpu_offload", False, False, remark="Parameters cannot be offloaded so far."),
    needless("fsdp.enable_rank0_init", True, "Weights are read from the checkpoint."),
    needless("fsdp.use_orig_params", False, "Parameters are always the model's own."),
    converted(
        "fsdp.fsdp_size",
        -1,
        sharding,
        "cluster.sharding",
        remark="Over all devices `full`, over those of a machine `hybrid`, 1 is `none`.",
    ),
    converted(
        "fsdp.torch_dtype",
        None,
        stored_format,
        remark="Master weights are float32, as with null in EasyR1.",
        differs=[
            Difference(
                where("bf16", "bfloat16"),
                "Master weights stay float32.",
            )
        ],
    ),
    converted(
        "fsdp.mp_param_dtype",
        "bf16",
        number_format,
        "model.dtype",
        remark="The number format of all passes and of the generator.",
    ),
    missing(
        "fsdp.mp_reduce_dtype",
        "fp32",
        *("fp32", "float32"),
        remark="Gradients are added up and clipped in float32.",
    ),
    missing("fsdp.mp_buffer_dtype", "fp32", *("fp32", "float32"), remark="Buffers such as rotary angles are float32."),
)

_OFFLOAD: tuple[Key, ...] = (
    needless(
        "offload.offload_params",
        False,
        "The policy's weights stay on the GPU; with `offload_optimizer` it is `trainer.offload: all`.",
    ),
    converted(
        "offload.offload_optimizer",
        False,
        offload,
        "trainer.offload",
        remark="`false` is `auto`: offloaded where the forecast does not fit otherwise.",
    ),
)


def _of_loss(name: str, default: float) -> Key:
    """An option of a loss, which is taken over if the configured loss has it."""
    key = f"algorithm.loss.{name}"
    return converted(name, default, when_loss_reads(name), key, remark="If the loss has this option.")


_ACTOR: tuple[Key, ...] = (
    needless("strategy", "fsdp", "Has no effect in EasyR1."),
    same("global_batch_size", 256, "actor.global_batch_size", remark="Prompts of an optimizer step, as in EasyR1."),
    same(
        "micro_batch_size_per_device_for_update",
        4,
        "actor.micro_batch_size_per_device_for_update",
        remark="A token budget in units of max_prompt_length + max_response_length, as with EasyR1's dynamic_batching.",
    ),
    same(
        "micro_batch_size_per_device_for_experience",
        16,
        "actor.micro_batch_size_per_device_for_experience",
        remark="The same for passes through the reference.",
    ),
    same("max_grad_norm", 1.0, "actor.max_grad_norm"),
    _of_loss("clip_ratio_low", 0.2),
    _of_loss("clip_ratio_high", 0.3),
    _of_loss("clip_ratio_dual", 3.0),
    same(
        "loss_avg_mode",
        "token",
        "algorithm.loss_avg_mode",
        differs=[
            Difference(
                where("seq"),
                "It is the mean over all sequences of the optimizer batch; EasyR1 weighs the mean of each micro-batch "
                "by its tokens.",
            )
        ],
    ),
    converted("loss_type", "default", loss_type, "algorithm.loss.type", remark="`default` is `ppo`."),
    _of_loss("tau_positive", 1.0),
    _of_loss("tau_negative", 1.05),
    same("ppo_epochs", 1, "actor.ppo_epochs"),
    needless("padding_free", True, _PACKED),
    needless("dynamic_batching", True, _PACKED),
    same("ulysses_size", 1, "cluster.sequence_parallel_size"),
    needless("use_torch_compile", True, "The output head is computed in chunks (model.log_prob_chunk_tokens)."),
    converted("model.model_path", None, checkpoint, "model.source.path"),
    missing("model.tokenizer_path", None, None, remark="The tokenizer is always the checkpoint's."),
    missing("model.override_config", {}, {}, None, remark="A checkpoint's config.json is taken as it is."),
    same("model.enable_gradient_checkpointing", True, "model.gradient_checkpointing"),
    needless("model.trust_remote_code", True, "The code in a checkpoint is never run."),
    converted("model.freeze_vision_tower", False, frozen_vision_tower, "model.freeze_vision_tower"),
    converted("model.lora.rank", 0, lora_rank, "model.lora.rank", remark="0 is `model.lora: null`."),
    converted("model.lora.alpha", 64, when_lora("model.lora.alpha"), "model.lora.alpha"),
    converted(
        "model.lora.target_modules",
        "all-linear",
        lora_targets,
        "model.lora.target_modules",
        remark="Names separated by commas become a list.",
    ),
    converted(
        "model.lora.exclude_modules", None, when_lora("model.lora.exclude_modules"), "model.lora.exclude_modules"
    ),
    same("optim.lr", 1e-6, "actor.optim.lr"),
    same("optim.betas", (0.9, 0.999), "actor.optim.betas"),
    same(
        "optim.weight_decay",
        1e-2,
        "actor.optim.weight_decay",
        differs=[
            Difference(
                unless(0),
                "Weight decay applies to matrices, not to biases and norms; in EasyR1 it applies to all weights.",
            )
        ],
    ),
    same(
        "optim.strategy",
        "adamw",
        "actor.optim.strategy",
        differs=[
            Difference(
                where("adamw_bf16"),
                "The second moment is float32; in EasyR1 both moments are bfloat16.",
            )
        ],
    ),
    converted(
        "optim.lr_warmup_ratio",
        0.0,
        warmup_ratio("actor"),
        "actor.optim.lr_warmup_ratio",
        remark="Rounded down to whole training steps and overridden by lr_warmup_steps, as in EasyR1.",
        differs=[
            Difference(
                lambda value, config: value > 0 and config["worker.actor.optim.lr_warmup_steps"] is None, _WARM_UP
            )
        ],
    ),
    converted(
        "optim.lr_warmup_steps",
        None,
        warmup_steps("actor"),
        "actor.optim.lr_warmup_steps",
        remark="Multiplied by the optimizer steps of a step: rollout_batch_size / global_batch_size x ppo_epochs.",
        differs=[Difference(unless(None, 0), _WARM_UP)],
    ),
    converted(
        "optim.min_lr_ratio", None, or_zero("actor.optim.min_lr_ratio"), "actor.optim.min_lr_ratio", remark="Null is 0."
    ),
    same(
        "optim.lr_scheduler_type",
        "constant",
        "actor.optim.lr_scheduler_type",
        differs=[
            Difference(
                where("cosine"), "The rate changes with every optimizer step; in EasyR1 once in a training step."
            )
        ],
    ),
    *_FSDP,
    *_OFFLOAD,
)

_ROLLOUT: tuple[Key, ...] = (
    needless("name", "vllm", "Has no effect in EasyR1."),
    same("n", 1, "rollout.n"),
    same("temperature", 1.0, "rollout.temperature"),
    missing(
        "top_p", 1.0, 1.0, remark="Not possible in training: the trainer's log-probs would differ from the generator's."
    ),
    missing(
        "top_k", -1, -1, remark="Not possible in training: the trainer's log-probs would differ from the generator's."
    ),
    needless(
        "seed",
        1,
        "Every response has a seed of its own.",
    ),
    needless("limit_images", 0, "Counted in the prepared rows."),
    converted("dtype", "bf16", engine_format, remark="The generator has the trainer's number format (model.dtype)."),
    same("gpu_memory_utilization", 0.6, "rollout.gpu_memory_utilization"),
    converted(
        "enforce_eager",
        False,
        eager,
        "rollout.enforce_eager",
        remark="`false` is `auto`: CUDA graphs on a GPU, and no compiling on a CPU.",
    ),
    needless("enable_chunked_prefill", False, "Sightline chooses it for the machine."),
    needless("max_num_batched_tokens", 8192, "Follows from the prompt and response lengths."),
    converted("max_model_len", None, longest_sequence, remark="Follows from the prompt and response lengths."),
    same("tensor_parallel_size", 2, "cluster.tensor_parallel_size"),
    missing("ignore_eos", False, False, remark="A response ends at its end-of-sequence token."),
    needless("disable_log_stats", True, "vLLM logs no statistics; timings.jsonl has the speed."),
    needless("disable_tqdm", False, "Progress bars are shown on a terminal."),
    converted(
        "val_override_config",
        {},
        validation_sampling,
        "evaluation.n",
        "evaluation.temperature",
        "evaluation.top_p",
        "evaluation.modes",
        remark="It sets validation (`trainer.val_mode: sampled`) and evaluation. "
        "`val/reward` is EasyR1's `val/reward_score`; `val/accuracy` counts `evaluation.accuracy_key` of the reward.",
    ),
)

_REWARD: tuple[Key, ...] = (
    converted(
        "reward_function",
        None,
        reward_function,
        "reward.function",
        "evaluation.accuracy_key",
        remark="`evaluation.accuracy_key` is `accuracy` if the file contains that name. `math`, `r1v` and `dapo` are "
        "also built in.",
        differs=[
            Difference(
                unless(None),
                "A call has a time limit (`reward.timeout_seconds`, `reward.batch_timeout_seconds`), and the "
                "responses of a call that takes longer have no score.",
            ),
            Difference(
                lambda value, config: not names_accuracy(value, config),
                "The file does not contain the name `accuracy`, so `val/accuracy` counts responses with an `overall` "
                "of 0.5 or more.",
            ),
        ],
    ),
    same("reward_function_kwargs", {}, "reward.kwargs"),
    converted(
        "reward_type",
        None,
        reward_type,
        "reward.reward_type",
        remark="From older versions; newer files define REWARD_TYPE. If neither does, it is `batch`, as in EasyR1.",
    ),
    missing("skip_special_tokens", True, True, remark="Responses reach the reward without special tokens."),
    needless("num_cpus", 1, "The number of scoring processes is `reward.workers`."),
)


def _below(section: str, keys: tuple[Key, ...]) -> tuple[Key, ...]:
    return tuple(replace(key, name=f"{section}.{key.name}") for key in keys)


WORKER: tuple[Key, ...] = (
    *_below("worker.actor", _ACTOR),
    *_below("worker.critic", CRITIC),
    *(needless(f"worker.critic.{key.name}", key.default, "The same as for the policy.") for key in (*_FSDP, *_OFFLOAD)),
    *_below("worker.rollout", _ROLLOUT),
    *(needless(f"worker.ref.{key.name}", key.default, "The same as for the policy.") for key in (*_FSDP, *_OFFLOAD)),
    *_below("worker.reward", _REWARD),
)
