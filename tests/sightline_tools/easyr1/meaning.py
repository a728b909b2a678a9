"""What a configuration of EasyR1 means in Sightline's keys, written down without the importer's table.

`sightline_config` has every key of a Sightline config, so that a new one has to be given its meaning here too.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.sightline_tools.easyr1.example import every_key

OF_AN_OWNER: Mapping[str, Any] = {
    "global_batch_size": 256,
    "micro_batch_size_per_device_for_update": 4,
    "micro_batch_size_per_device_for_experience": 16,
    "model.model_path": None,
    "model.trust_remote_code": True,
}
OFFLOAD: Mapping[str, Any] = {"offload.offload_params": False, "offload.offload_optimizer": False}
DATACLASS_DEFAULTS: Mapping[str, Any] = {
    **{f"worker.{owner}.{name}": value for owner in ("actor", "critic") for name, value in OF_AN_OWNER.items()},
    **{f"worker.{owner}.{name}": value for owner in ("actor", "critic", "ref") for name, value in OFFLOAD.items()},
    "data.train_files": "",
    "data.val_files": "",
    "data.prompt_key": "prompt",
    "data.max_prompt_length": 512,
    "data.max_response_length": 512,
    "data.val_batch_size": -1,
    "data.format_prompt": None,
    "algorithm.use_kl_loss": False,
    "algorithm.kl_penalty": "kl",
    "algorithm.kl_coef": 1e-3,
    "worker.actor.model.lora.exclude_modules": None,
    "worker.rollout.n": 1,
    "worker.rollout.val_override_config": {},
    "worker.ref.fsdp.enable_cpu_offload": False,
    "worker.reward.reward_function": None,
    "worker.reward.reward_type": None,
    "trainer.experiment_name": "demo",
    "trainer.logger": ["console", "wandb"],
    "trainer.val_freq": -1,
    "trainer.val_generations_to_log": 0,
    "trainer.save_freq": -1,
    "trainer.save_limit": -1,
}
"""EasyR1's defaults where its example file has others."""

OWN_OF_A_SOURCE: Mapping[str, Any] = {
    "columns.images_first": False,
    "columns.data_source_key": None,
    "columns.answer_pattern": None,
    "columns.options_key": None,
    "columns.class_names": None,
    "columns.answer_as": "letter",
    "limit": None,
}
OWN: Mapping[str, Any] = {
    "trainer.stop_at": None,
    "paths_from": [],
    "trainer.stop_without_signal": None,
    "data.system_prompt": None,
    "data.source_weights": None,
    "data.curriculum": None,
    "data.max_bad_share": 0.01,  # EasyR1 ends at its first bad row
    "data.video_max_frames": 768,  # as its reader of videos
    "model.source.type": "pretrained",
    "model.source.revision": None,
    "model.family": None,
    "model.attention": "auto",
    "model.log_prob_chunk_tokens": 2048,
    "reward.mixture": [],
    "reward.by_source": {},
    "reward.grader": None,
    "reward.workers": 2,
    "reward.async_calls": 16,
    "reward.memory_limit_gib": 4.0,
    "reward.max_failed_share": 0.05,
    "cold_start": None,
    "rollout.cpu_kv_cache_gib": 1,
    "rollout.max_num_seqs": 512,
    "tools": None,
    "data.max_source_pixels": None,
    "rollout.max_log_prob_gap": None,
    "rollout.max_mean_log_prob_gap": None,
    "rollout.min_log_prob_correlation": None,
    "rollout.staleness": 0,
    "algorithm.entropy_coef": 0.0,
    "algorithm.overlong_filtering": False,
    "algorithm.old_log_probs": "recompute",  # always, by its actor
    "algorithm.correction": None,
    "actor.optim.eps": 1e-8,
    "trainer.val_mode": "sampled",  # validation draws by worker.rollout.val_override_config
    "cluster.address": "local",
    "cluster.device": "auto",
    "cluster.threads": None,
    "cluster.dealing": "static",
    "cluster.placement": "colocated",
    "cluster.generating_devices": 1,
    "cluster.min_workers": None,  # Ray would wait for all of them
    "cluster.wait_for_all_seconds": 300.0,
    "cluster.start_timeout_seconds": 300.0,
    "cluster.hang_timeout_seconds": 7200.0,
    "cluster.runtime_env": {},
    "trainer.max_nonfinite_steps": 3,
    "trainer.async_save": True,
    "evaluation.modes": ["sampled"],
    "evaluation.tools": "same",
    "evaluation.limit": None,
    "evaluation.categories": [],
    "merge.checkpoint": "last",
    "merge.probe_tolerance": None,
    "merge.push": None,
    "tracking.generations_to_log": 4,
    "tracking.gallery_items": 24,
    "planning.mean_prompt_length": None,
    "planning.mean_response_length": None,
    "forked_from": None,
    "published": None,
    "storage": None,
}
"""Keys that no key of EasyR1 decides, at what it does, or at what does not move a run's numbers."""

WITHOUT_EFFECT: frozenset[str] = frozenset(
    {
        "data.val_batch_size",
        "data.filter_overlong_prompts_workers",
        "worker.actor.strategy",
        "worker.actor.padding_free",
        "worker.actor.dynamic_batching",
        "worker.actor.use_torch_compile",
        "worker.actor.model.trust_remote_code",
        "worker.actor.fsdp.enable_full_shard",
        "worker.actor.fsdp.enable_rank0_init",
        "worker.actor.fsdp.use_orig_params",
        "worker.rollout.name",
        "worker.rollout.seed",
        "worker.rollout.limit_images",
        "worker.rollout.enable_chunked_prefill",
        "worker.rollout.max_num_batched_tokens",
        "worker.rollout.disable_log_stats",
        "worker.rollout.disable_tqdm",
        "worker.reward.num_cpus",
        "trainer.save_checkpoint_path",
        "trainer.ray_timeline",
    }
)
"""Keys of EasyR1 that move memory, speed or what is printed, and no number of the run."""

Flat = dict[str, Any]


class Reference(Mapping[str, Any]):
    """A resolved configuration of EasyR1 that knows which of its keys were asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.asked: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def resolved(changes: Mapping[str, Any], *, with_example: bool) -> Reference:
    """The example file's values, or the defaults of EasyR1's dataclasses, with the keys of a script laid over them."""
    values = flat(every_key(), own={"override_config", "val_override_config", "reward_function_kwargs"})
    numbers = {name: float(value) for name, value in values.items() if name.endswith(("lr", "decay", "kl_coef"))}
    return Reference({**values, **numbers, **({} if with_example else DATACLASS_DEFAULTS), **changes})


def flat(tree: Mapping[str, Any], prefix: str = "", own: set[str] | frozenset[str] = frozenset()) -> Flat:
    """Dotted keys; a mapping that is empty, or whose name is among `own`, is a value."""
    found: Flat = {}
    for name, value in tree.items():
        inner = isinstance(value, Mapping) and value and name not in own
        found |= flat(value, f"{prefix}{name}.", own) if inner else {f"{prefix}{name}": value}
    return found


def command_line(changes: Mapping[str, Any]) -> list[str]:
    """As it is written after `python3 -m verl.trainer.main`."""
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in changes.items()]


def sightline_config(e: Reference, files: Mapping[str, str], accuracy_key: str) -> Flat:
    """Every key of the Sightline config that is the same experiment.

    Args:
        e: The configuration of EasyR1.
        files: Where its files lie, as seen from the working directory.
        accuracy_key: The reward component that says whether a response is right.
    """
    return {
        **OWN,
        "experiment": e["trainer.experiment_name"].replace("_", "-"),
        "seed": e["data.seed"],
        **_source("data.train", e["data.train_files"], e, files),
        **_source("data.validation", e["data.val_files"], e, files),
        **_data(e, files),
        **_model(e),
        **_reward(e, files, accuracy_key),
        **_rollout(e),
        **_algorithm(e),
        **_owner("actor", e),
        **_critic(e),
        **_trainer(e),
        **_tracking(e),
        **_cluster(e),
    }


def _cluster(e: Reference) -> Flat:
    return {
        "cluster.nodes": e["trainer.nnodes"],
        "cluster.devices": e["trainer.n_gpus_per_node"],
        "cluster.sequence_parallel_size": e["worker.actor.ulysses_size"],
        "cluster.tensor_parallel_size": e["worker.rollout.tensor_parallel_size"],
        "cluster.sharding": _sharding(e) or "full",
    }


def _sharding(e: Reference) -> str | None:
    """Its mesh is [devices / fsdp_size, fsdp_size]: weights are spread over the second axis."""
    per_machine, size = e["trainer.n_gpus_per_node"], e["worker.actor.fsdp.fsdp_size"]
    if size <= 0 or size >= per_machine * e["trainer.nnodes"]:
        return "full"
    return {1: "none", per_machine: "hybrid"}.get(size)


def _source(key: str, written: str, e: Reference, files: Mapping[str, str]) -> Flat:
    path, _, split = written.partition("@")
    columns = {f"{key}.columns.{name}": e[f"data.{name}"] for name in ("prompt_key", "answer_key")}
    columns |= {f"{key}.columns.{name}": e[f"data.{name}"] for name in ("image_key", "video_key")}
    media = {f"{key}.media_dir": None if e["data.image_dir"] is None else files[e["data.image_dir"]]}
    read = {**{f"{key}.{name}": value for name, value in OWN_OF_A_SOURCE.items()}, **columns, **media}
    if path.endswith((".jsonl", ".parquet")):
        return {**read, f"{key}.type": "local", f"{key}.path": files[path], f"{key}.format": "auto"}
    name = f"{files.get(path, path)}@{split or 'train'}"
    return {**read, f"{key}.type": "hub", f"{key}.name": name, f"{key}.config": None, f"{key}.revision": None}


def _data(e: Reference, files: Mapping[str, str]) -> Flat:
    prompt, chat = e["data.format_prompt"], e["data.override_chat_template"]
    same = ("max_prompt_length", "min_pixels", "max_pixels", "video_fps", "rollout_batch_size", "shuffle")
    return {
        **{f"data.{name}": e[f"data.{name}"] for name in same},
        "data.prompt_template": None if prompt is None else files[prompt],
        "data.override_chat_template": None if chat is None else files[chat],
        "data.chat_template_kwargs": {},
        "data.overlong": "filter" if e["data.filter_overlong_prompts"] else "error",
    }


def _model(e: Reference) -> Flat:
    model = "worker.actor.model"
    with_adapters = e[f"{model}.lora.rank"] > 0
    lora = {f"model.lora.{name}": e[f"{model}.lora.{name}"] for name in ("rank", "alpha", "target_modules")}
    lora["model.lora.exclude_modules"] = e[f"{model}.lora.exclude_modules"]
    lora["model.lora.generator_weights"] = "merged"
    return {
        "model.source.path": e[f"{model}.model_path"],
        "model.dtype": {"bf16": "bfloat16", "fp32": "float32"}[e["worker.actor.fsdp.mp_param_dtype"]],
        "model.gradient_checkpointing": e[f"{model}.enable_gradient_checkpointing"],
        "model.freeze_vision_tower": e[f"{model}.freeze_vision_tower"] and not with_adapters,
        **(lora if with_adapters else {"model.lora": None}),
    }


def _reward(e: Reference, files: Mapping[str, str], accuracy_key: str) -> Flat:
    file, _, function = e["worker.reward.reward_function"].partition(":")
    kwargs = e["worker.reward.reward_function_kwargs"]
    return {
        "reward.function": f"{files[file]}:{function or 'main'}",
        **(flat({"reward": {"kwargs": kwargs}}) if kwargs else {"reward.kwargs": {}}),
        "reward.reward_type": e["worker.reward.reward_type"] or "batch",
        "reward.timeout_seconds": 10.0,  # printed: EasyR1 waits for ever
        "reward.batch_timeout_seconds": 120.0,
        "reward.load_timeout_seconds": 120.0,
        "evaluation.accuracy_key": accuracy_key,
    }


def _rollout(e: Reference) -> Flat:
    """Validation draws as training does, but for what its own section says."""
    rollout = "worker.rollout"
    validation = {name: e[f"{rollout}.{name}"] for name in ("n", "temperature", "top_p")}
    return {
        "rollout.n": e[f"{rollout}.n"],
        "rollout.temperature": e[f"{rollout}.temperature"],
        "rollout.max_response_length": e["data.max_response_length"],
        "rollout.gpu_memory_utilization": e[f"{rollout}.gpu_memory_utilization"],
        "rollout.enforce_eager": e[f"{rollout}.enforce_eager"] or "auto",  # the same on every machine EasyR1 runs on
        **{f"evaluation.{k}": v for k, v in {**validation, **e[f"{rollout}.val_override_config"]}.items()},
    }


def _algorithm(e: Reference) -> Flat:
    """Of the options those that the loss and the estimator read there."""
    loss, estimator = e["worker.actor.loss_type"], e["algorithm.adv_estimator"]
    bounds = ("clip_ratio_low", "clip_ratio_high")
    read = {"sapo": ("tau_positive", "tau_negative"), "cispo": bounds}.get(loss, (*bounds, "clip_ratio_dual"))
    discounts = {"gae": ("gamma", "lam"), "reinforce_plus_plus": ("gamma",)}.get(estimator, ())
    return {
        "algorithm.advantage.type": estimator,
        **{f"algorithm.advantage.{name}": e[f"algorithm.{name}"] for name in discounts},
        "algorithm.loss.type": "ppo" if loss == "default" else loss,
        **{f"algorithm.loss.{name}": e[f"worker.actor.{name}"] for name in read},
        "algorithm.loss_avg_mode": e["worker.actor.loss_avg_mode"],
        **_kl(e),
        **_filtering(e),
    }


def _kl(e: Reference) -> Flat:
    target = {"target": e["algorithm.kl_target"], "horizon": e["algorithm.kl_horizon"]}
    if e["algorithm.disable_kl"] or e["algorithm.kl_coef"] == 0:
        return {"algorithm.kl": None}
    in_reward = not e["algorithm.use_kl_loss"]  # a KL in the loss has a coefficient that stays
    adaptive = target if e["algorithm.kl_type"] == "adaptive" and in_reward else None
    return {
        "algorithm.kl.coef": e["algorithm.kl_coef"],
        "algorithm.kl.penalty": e["algorithm.kl_penalty"],
        "algorithm.kl.use_kl_loss": e["algorithm.use_kl_loss"],
        **flat({"algorithm": {"kl": {"adaptive": adaptive}}}),
    }


def _filtering(e: Reference) -> Flat:
    key = "algorithm.online_filtering"
    settings = {
        "filter_key": e["algorithm.filter_key"],
        "filter_low": e["algorithm.filter_low"],
        "filter_high": e["algorithm.filter_high"],
        "mini_rollout_batch_size": e["data.mini_rollout_batch_size"],
        "max_try_make_batch": e["trainer.max_try_make_batch"],
        "type": "bounds",
        "statistic": "mean",
        "surplus": "discard",
    }
    return {f"{key}.{name}": value for name, value in settings.items()} if e[key] else {key: None}


def _owner(owner: str, e: Reference) -> Flat:
    theirs = f"worker.{owner}"
    micro = "micro_batch_size_per_device_for"
    same = ("global_batch_size", "ppo_epochs", f"{micro}_update", f"{micro}_experience", "max_grad_norm")
    optim = ("lr", "weight_decay", "lr_scheduler_type", "strategy")
    steps, ratio = e[f"{theirs}.optim.lr_warmup_steps"], e[f"{theirs}.optim.lr_warmup_ratio"]
    updates = e["data.rollout_batch_size"] // e[f"{theirs}.global_batch_size"] * e[f"{theirs}.ppo_epochs"]
    return {
        **{f"{owner}.{name}": e[f"{theirs}.{name}"] for name in same},
        **{f"{owner}.optim.{name}": e[f"{theirs}.optim.{name}"] for name in optim},
        f"{owner}.optim.betas": list(e[f"{theirs}.optim.betas"]),
        f"{owner}.optim.lr_decay_ratio": 0.1,
        f"{owner}.optim.min_lr_ratio": e[f"{theirs}.optim.min_lr_ratio"] or 0.0,
        f"{owner}.optim.lr_warmup_steps": 0 if steps is None else steps * updates,  # counted in steps there
        f"{owner}.optim.lr_warmup_ratio": ratio if steps is None else 0.0,
    }


def _critic(e: Reference) -> Flat:
    own = {"critic.optim.eps": 1e-8}
    own |= {f"critic.{name}": e[f"worker.critic.{name}"] for name in ("cliprange_value", "loss_avg_mode")}
    critic = {**_owner("critic", e), **own}
    return critic if e["algorithm.adv_estimator"] == "gae" else {"critic": None}


def _trainer(e: Reference) -> Flat:
    same = ("total_epochs", "max_steps", "val_before_train", "save_model_only")
    has_critic = e["algorithm.adv_estimator"] == "gae"
    return {
        **{f"trainer.{name}": e[f"trainer.{name}"] for name in same},
        "trainer.val_freq": e["trainer.val_freq"] if e["trainer.val_freq"] > 0 else -1,
        "trainer.save_freq": e["trainer.save_freq"] if e["trainer.save_freq"] > 0 else 5,  # printed
        "trainer.save_on_epoch_end": e["trainer.save_freq"] < 1,
        "trainer.save_limit": e["trainer.save_limit"] if e["trainer.save_limit"] > 0 else 3,  # printed
        "trainer.critic_warmup": e["trainer.critic_warmup"] if has_critic else 0,  # printed
        "trainer.offload": _offload(e),
        "tracking.val_generations_to_log": e["trainer.val_generations_to_log"],
    }


def _offload(e: Reference) -> str:
    actor = "worker.actor.offload"
    if not e[f"{actor}.offload_optimizer"]:
        return "auto"  # one GPU has less room than the several of EasyR1
    return "all" if e[f"{actor}.offload_params"] else "optimizer"


def _tracking(e: Reference) -> Flat:
    loggers = e["trainer.logger"]
    named_here = {"name": None, "group": None, "tags": [], "notes": None}
    project = {"mode": "online", "entity": None, "project": e["trainer.project_name"], **named_here}
    return {
        **{f"tracking.{name}": name in loggers for name in ("console", "tensorboard", "swanlab")},
        "tracking.mlflow_uri": "sqlite:///mlflow.db" if "mlflow" in loggers else None,
        **flat({"tracking": {"wandb": project if "wandb" in loggers else None}}),
    }


def printed(e: Reference) -> dict[str, bool]:
    """[key of EasyR1] whether an import has to speak of it: it cannot do what is asked for, or does it otherwise."""
    optim, fsdp, rollout = "worker.actor.optim", "worker.actor.fsdp", "worker.rollout"
    longest = e["data.max_prompt_length"] + e["data.max_response_length"]
    steps = e[f"{optim}.lr_warmup_steps"]
    has_critic = e["algorithm.adv_estimator"] == "gae"
    return {
        # None of it here.
        "data.filter_overlong_prompts": not e["data.filter_overlong_prompts"],
        "worker.actor.model.tokenizer_path": e["worker.actor.model.tokenizer_path"] is not None,
        "worker.actor.model.override_config": bool(e["worker.actor.model.override_config"]),
        f"{fsdp}.enable_cpu_offload": e[f"{fsdp}.enable_cpu_offload"],
        f"{fsdp}.mp_reduce_dtype": e[f"{fsdp}.mp_reduce_dtype"] != "fp32",
        f"{fsdp}.mp_buffer_dtype": e[f"{fsdp}.mp_buffer_dtype"] != "fp32",
        f"{rollout}.top_p": e[f"{rollout}.top_p"] != 1.0,
        f"{rollout}.top_k": e[f"{rollout}.top_k"] != -1,
        f"{rollout}.dtype": e[f"{rollout}.dtype"] != e[f"{fsdp}.mp_param_dtype"],
        f"{rollout}.max_model_len": (e[f"{rollout}.max_model_len"] or longest) < longest,
        f"{rollout}.ignore_eos": e[f"{rollout}.ignore_eos"],
        "worker.reward.skip_special_tokens": not e["worker.reward.skip_special_tokens"],
        f"{fsdp}.fsdp_size": _sharding(e) is None,
        "trainer.critic_warmup": e["trainer.critic_warmup"] > 1 and not has_critic,
        "trainer.val_only": e["trainer.val_only"],
        "trainer.save_freq": e["trainer.save_freq"] < 1,
        "trainer.load_checkpoint_path": e["trainer.load_checkpoint_path"] is not None,
        "trainer.find_last_checkpoint": not e["trainer.find_last_checkpoint"],
        # Otherwise here.
        "data.mini_rollout_batch_size": not e["algorithm.online_filtering"]
        and bool(e["data.mini_rollout_batch_size"])
        and e["data.rollout_batch_size"] % e["data.mini_rollout_batch_size"] != 0,
        "worker.actor.loss_avg_mode": e["worker.actor.loss_avg_mode"] == "seq",
        f"{optim}.weight_decay": e[f"{optim}.weight_decay"] > 0,
        f"{optim}.strategy": e[f"{optim}.strategy"] == "adamw_bf16",
        f"{optim}.lr_warmup_steps": bool(steps),
        f"{optim}.lr_warmup_ratio": steps is None and e[f"{optim}.lr_warmup_ratio"] > 0,
        f"{optim}.lr_scheduler_type": e[f"{optim}.lr_scheduler_type"] == "cosine",
        f"{fsdp}.torch_dtype": e[f"{fsdp}.torch_dtype"] == "bf16",
        "worker.reward.reward_function": True,
        "trainer.save_limit": e["trainer.save_limit"] < 1 or e["trainer.val_freq"] > 0,
    }
