"""What the options of other projects (TRL, transformers, verl, EasyR1, OpenRLHF) are called here, for the message about
an unknown key. In the values, what stands between backticks is a key of a config."""

from typing import Final

_PASS = "`actor.micro_batch_size_per_device_for_update`, samples of a forward and backward pass"
_STEP = "`data.rollout_batch_size`, prompts of a step"
_OPTIMIZER_STEP = "`actor.global_batch_size`, prompts of an optimizer step"
_ADVANTAGE = "`algorithm.advantage.type`"
_PRECISION = "`model.dtype`"
_RATE = "`actor.optim.lr`"
_RESPONSE = "`rollout.max_response_length`"
_LOGGING = "every step is logged; `tracking` says where to"

OTHER_NAMES: Final = {
    "actor_learning_rate": _RATE,
    "adam_beta1": "`actor.optim.betas`",
    "adam_beta2": "`actor.optim.betas`",
    "adam_epsilon": "`actor.optim.eps`",
    "adv_estimator": _ADVANTAGE,
    "advantage_estimator": _ADVANTAGE,
    "batch_size": f"{_STEP}, or {_OPTIMIZER_STEP}",
    "beta": "`algorithm.kl.coef`",
    "bf16": _PRECISION,
    "clip_ratio": "`algorithm.loss.clip_ratio_low` and `algorithm.loss.clip_ratio_high`",
    "early_stopping": "`trainer.stop_at`; `merge.checkpoint: best` takes the best checkpoint of the validations",
    "epochs": "`trainer.total_epochs`",
    "epsilon": "`algorithm.loss.clip_ratio_low`",
    "epsilon_high": "`algorithm.loss.clip_ratio_high`",
    "eps_clip": "`algorithm.loss.clip_ratio_low` and `algorithm.loss.clip_ratio_high`",
    "eval_steps": "`trainer.val_freq`",
    "fp16": _PRECISION,
    "generate_max_len": _RESPONSE,
    "gradient_accumulation_steps": f"{_OPTIMIZER_STEP}, of which passes take as many as fit",
    "init_kl_coef": "`algorithm.kl.coef`",
    "kl_coef": "`algorithm.kl.coef`",
    "kl_loss_coef": "`algorithm.kl.coef`",
    "learning_rate": _RATE,
    "logging_steps": _LOGGING,
    "lora_alpha": "`model.lora.alpha`",
    "lora_r": "`model.lora.rank`",
    "lora_rank": "`model.lora.rank`",
    "loss_type": "`algorithm.loss.type` and `algorithm.loss_avg_mode`",
    "max_completion_length": _RESPONSE,
    "max_len": f"`data.max_prompt_length` and {_RESPONSE}",
    "max_new_tokens": _RESPONSE,
    "max_tokens": _RESPONSE,
    "micro_train_batch_size": _PASS,
    "model_name_or_path": "`model.source.path`, of the type pretrained",
    "model_path": "`model.source.path`, of the type pretrained",
    "n_samples_per_prompt": "`rollout.n`",
    "num_epochs": "`trainer.total_epochs`",
    "num_generations": "`rollout.n`",
    "num_iterations": "`actor.ppo_epochs`",
    "num_train_epochs": "`trainer.total_epochs`",
    "output_dir": "the option --runs-dir of the command",
    "per_device_eval_batch_size": "the generator takes as many requests as fit (`rollout.max_num_seqs`)",
    "per_device_train_batch_size": _PASS,
    "ppo_micro_batch_size_per_gpu": _PASS,
    "ppo_mini_batch_size": _OPTIMIZER_STEP,
    "project_name": "`experiment`",
    "prompt_max_len": "`data.max_prompt_length`",
    "report_to": _LOGGING,
    "reward_funcs": "`reward.function`, or several in `reward.mixture`",
    "reward_weights": "the weights of `reward.mixture`",
    "rollout_batch_size": _STEP,
    "save_steps": "`trainer.save_freq`",
    "save_total_limit": "`trainer.save_limit`",
    "scale_rewards": f"{_ADVANTAGE}: dr_grpo does not divide by the deviation",
    "test_freq": "`trainer.val_freq`",
    "top_p": "`evaluation.top_p`; in training nothing is cut off, so that log-probs are those of the policy",
    "torch_dtype": _PRECISION,
    "total_training_steps": "`trainer.max_steps`",
    "train_batch_size": _STEP,
    "vllm_gpu_memory_utilization": "`rollout.gpu_memory_utilization`",
    "warmup_ratio": "`actor.optim.lr_warmup_ratio`",
    "warmup_steps": "`actor.optim.lr_warmup_steps`",
}
