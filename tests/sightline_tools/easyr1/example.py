"""A configuration with every key of EasyR1, at the values of its `examples/config.yaml` where that sets them."""

from typing import Any

FSDP = {
    "enable_full_shard": True,
    "enable_cpu_offload": False,
    "enable_rank0_init": True,
    "use_orig_params": False,
    "fsdp_size": -1,
    "torch_dtype": None,
    "mp_param_dtype": "bf16",
    "mp_reduce_dtype": "fp32",
    "mp_buffer_dtype": "fp32",
}
OFFLOAD = {"offload_params": True, "offload_optimizer": True}
OPTIM = {
    "lr": "1.0e-6",
    "betas": [0.9, 0.999],
    "weight_decay": "1.0e-2",
    "strategy": "adamw",
    "lr_warmup_ratio": 0.0,
    "lr_warmup_steps": None,
    "min_lr_ratio": None,
    "lr_scheduler_type": "constant",
}
MODEL = {
    "model_path": "Qwen/Qwen2.5-7B-Instruct",
    "tokenizer_path": None,
    "override_config": {},
    "enable_gradient_checkpointing": True,
    "trust_remote_code": False,
    "freeze_vision_tower": False,
}
UPDATE = {
    "strategy": "fsdp",
    "global_batch_size": 128,
    "micro_batch_size_per_device_for_update": 1,
    "micro_batch_size_per_device_for_experience": 2,
    "max_grad_norm": 1.0,
    "loss_avg_mode": "token",
    "ppo_epochs": 1,
    "padding_free": True,
    "dynamic_batching": True,
    "ulysses_size": 1,
    "use_torch_compile": True,
    "optim": OPTIM,
    "fsdp": FSDP,
    "offload": OFFLOAD,
}


def every_key() -> dict[str, Any]:
    """Nested, as its YAML would be read."""
    return {
        "data": {
            "train_files": "hiyouga/math12k@train",
            "val_files": "hiyouga/math12k@test",
            "prompt_key": "problem",
            "answer_key": "answer",
            "image_key": "images",
            "video_key": "videos",
            "image_dir": None,
            "video_fps": 2.0,
            "max_prompt_length": 2048,
            "max_response_length": 2048,
            "rollout_batch_size": 512,
            "mini_rollout_batch_size": None,
            "val_batch_size": 1024,
            "format_prompt": "./examples/format_prompt/math.jinja",
            "override_chat_template": None,
            "shuffle": True,
            "seed": 1,
            "min_pixels": 262144,
            "max_pixels": 4194304,
            "filter_overlong_prompts": True,
            "filter_overlong_prompts_workers": 16,
        },
        "algorithm": {
            "gamma": 1.0,
            "lam": 1.0,
            "adv_estimator": "grpo",
            "disable_kl": False,
            "use_kl_loss": True,
            "kl_penalty": "low_var_kl",
            "kl_coef": "1.0e-2",
            "kl_type": "fixed",
            "kl_horizon": 10000.0,
            "kl_target": 0.1,
            "online_filtering": False,
            "filter_key": "overall",
            "filter_low": 0.01,
            "filter_high": 0.99,
        },
        "worker": {
            "actor": UPDATE
            | {
                "clip_ratio_low": 0.2,
                "clip_ratio_high": 0.3,
                "clip_ratio_dual": 3.0,
                "loss_type": "default",
                "tau_positive": 1.0,
                "tau_negative": 1.05,
                "model": MODEL
                | {
                    "lora": {"rank": 0, "alpha": 64, "target_modules": "all-linear", "exclude_modules": ".*visual.*"},
                },
            },
            "critic": UPDATE | {"padding_free": False, "cliprange_value": 0.5, "model": MODEL},
            "rollout": {
                "name": "vllm",
                "n": 5,
                "temperature": 1.0,
                "top_p": 1.0,
                "top_k": -1,
                "seed": 1,
                "limit_images": 0,
                "dtype": "bf16",
                "gpu_memory_utilization": 0.6,
                "enforce_eager": False,
                "enable_chunked_prefill": False,
                "max_num_batched_tokens": 8192,
                "max_model_len": None,
                "tensor_parallel_size": 2,
                "ignore_eos": False,
                "disable_log_stats": True,
                "disable_tqdm": False,
                "val_override_config": {"temperature": 0.6, "top_p": 0.95, "n": 1},
            },
            "ref": {"fsdp": FSDP | {"enable_cpu_offload": True}, "offload": OFFLOAD},
            "reward": {
                "reward_function": "./examples/reward_function/math.py:compute_score",
                "reward_function_kwargs": {},
                "reward_type": "batch",
                "skip_special_tokens": True,
                "num_cpus": 1,
            },
        },
        "trainer": {
            "total_epochs": 15,
            "max_steps": None,
            "project_name": "easy_r1",
            "experiment_name": "qwen2_5_7b_math_grpo",
            "logger": ["file", "wandb"],
            "nnodes": 1,
            "n_gpus_per_node": 8,
            "max_try_make_batch": 20,
            "critic_warmup": 0,
            "val_freq": 5,
            "val_before_train": True,
            "val_only": False,
            "val_generations_to_log": 3,
            "save_freq": 5,
            "save_limit": 3,
            "save_model_only": False,
            "save_checkpoint_path": None,
            "load_checkpoint_path": None,
            "find_last_checkpoint": True,
            "ray_timeline": None,
        },
    }


def dotted(tree: dict[str, Any], prefix: str = "") -> set[str]:
    """The names of the keys; those that hold a mapping of the user's own end there."""
    own = {"override_config", "val_override_config", "reward_function_kwargs"}
    names: set[str] = set()
    for name, value in tree.items():
        inner = isinstance(value, dict) and name not in own
        names |= dotted(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}"}
    return names
