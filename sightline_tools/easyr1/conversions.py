"""Conversions of values that Sightline writes differently, or counts in other units, than EasyR1."""

from typing import Any

from rl_core.algorithms.estimators import ESTIMATORS
from rl_core.algorithms.losses import LOSSES
from rl_core.config.run import experiment_name
from rl_core.section import Choices
from sightline_tools.easyr1.key import Assignments, Convert, EasyR1Config, NoEquivalent


def experiment(value: Any, config: EasyR1Config) -> Assignments:
    """The experiment's name, of lower-case letters, digits and hyphens."""
    return {"experiment": experiment_name(str(value), otherwise="easyr1")}


def overlong(value: Any, config: EasyR1Config) -> Assignments:
    """Whether long prompts are left out or are an error; Sightline never cuts them."""
    if value:
        return {"data.overlong": "filter"}
    raise NoEquivalent(
        "a prompt of more than data.max_prompt_length tokens stops the preparation; EasyR1 cuts off its end, and "
        "stops in the middle of the run if the prompt has images",
        {"data.overlong": "error"},
    )


def when_kl(key: str) -> Convert:
    """The value as `key`, if there is a KL term."""
    return lambda value, config: {key: value} if has_kl(config) else {}


def without_kl(value: Any, config: EasyR1Config) -> Assignments:
    """`algorithm.kl: null`, if there is no KL term."""
    return {} if has_kl(config) else {"algorithm.kl": None}


def has_kl(config: EasyR1Config) -> bool:
    """Whether there is a KL term: it is not disabled, and its coefficient is not 0."""
    return not config["algorithm.disable_kl"] and float(config["algorithm.kl_coef"]) > 0.0


def when_adaptive(key: str) -> Convert:
    """The value as `key`, if the KL coefficient is adaptive, which EasyR1 allows in the reward only."""
    return lambda value, config: {key: value} if has_kl(config) and _is_adaptive(config) else {}


def kl_type(value: Any, config: EasyR1Config) -> Assignments:
    """`adaptive: null` for a fixed coefficient; an adaptive one gets a target and a horizon from other keys."""
    return {"algorithm.kl.adaptive": None} if has_kl(config) and not _is_adaptive(config) else {}


def _is_adaptive(config: EasyR1Config) -> bool:
    return bool(config["algorithm.kl_type"] == "adaptive" and not config["algorithm.use_kl_loss"])


def when_filtering(key: str) -> Convert:
    """The value as `key`, if there is group filtering."""
    return lambda value, config: {key: value} if config["algorithm.online_filtering"] else {}


def leaves_a_remainder(value: Any, config: EasyR1Config) -> bool:
    """Whether the mini batches of a run without group filtering do not fill a rollout batch exactly."""
    return not config["algorithm.online_filtering"] and bool(value) and config["data.rollout_batch_size"] % value > 0


def without_filter(value: Any, config: EasyR1Config) -> Assignments:
    """`online_filtering: null`, if there is no group filtering."""
    return {} if value else {"algorithm.online_filtering": None}


def loss_type(value: Any, config: EasyR1Config) -> Assignments:
    """The type of the loss; EasyR1's `default` is PPO."""
    return {"algorithm.loss.type": _loss(config)}


def when_loss_reads(name: str) -> Convert:
    """The option, if the configured loss has it; EasyR1's other losses ignore it."""
    return lambda value, config: {f"algorithm.loss.{name}": value} if has_option(LOSSES, _loss(config), name) else {}


def when_estimator_reads(name: str) -> Convert:
    """The option, if the configured advantage estimator has it; EasyR1's other estimators ignore it."""
    return lambda value, config: (
        {f"algorithm.advantage.{name}": value}
        if has_option(ESTIMATORS, config["algorithm.adv_estimator"], name)
        else {}
    )


def _loss(config: EasyR1Config) -> str:
    loss = str(config["worker.actor.loss_type"])
    return "ppo" if loss == "default" else loss


def when_critic(convert: Convert) -> Convert:
    """The result of `convert`, if there is a critic."""
    return lambda value, config: convert(value, config) if _has_critic(config) else {}


def critic_warmup(value: Any, config: EasyR1Config) -> Assignments:
    """The critic's warm-up. In EasyR1 it delays the training of the policy even if there is no critic."""
    if _has_critic(config):
        return {"trainer.critic_warmup": value}
    if value > 1:
        raise NoEquivalent("without a critic the policy learns from the first step on")
    return {}


def whole_critic(value: Any, config: EasyR1Config) -> Assignments:
    """Raises NoEquivalent where part of the critic would be frozen."""
    if value:
        raise NoEquivalent("all of a critic is trained")
    return {}


def _has_critic(config: EasyR1Config) -> bool:
    return bool(config["algorithm.adv_estimator"] == "gae")


def under(key: str) -> Convert:
    """The value as `key`."""
    return lambda value, config: {key: value}


def same_body(value: Any, config: EasyR1Config) -> Assignments:
    """Raises NoEquivalent where the critic does not start from the policy's checkpoint."""
    if value not in (None, config["worker.actor.model.model_path"]):
        raise NoEquivalent("a critic starts from the model that the policy starts from")
    return {}


def optimizer_steps_per_step(config: EasyR1Config, owner: str) -> int:
    """Optimizer steps of the actor or the critic in one training step. EasyR1 advances its learning-rate schedule once
    in a training step, Sightline in each optimizer step."""
    batches = int(config["data.rollout_batch_size"]) // int(config[f"worker.{owner}.global_batch_size"])
    return max(1, batches) * int(config[f"worker.{owner}.ppo_epochs"])


def warmup_steps(owner: str) -> Convert:
    """A number of training steps, converted to optimizer steps of the `owner`."""

    def convert(value: Any, config: EasyR1Config) -> Assignments:
        if value is None:
            return {}
        return {f"{owner}.optim.lr_warmup_steps": value * optimizer_steps_per_step(config, owner)}

    return convert


def warmup_ratio(owner: str) -> Convert:
    """A share of the run's training steps, unless lr_warmup_steps overrides it."""

    def convert(value: Any, config: EasyR1Config) -> Assignments:
        is_overridden = config[f"worker.{owner}.optim.lr_warmup_steps"] is not None
        return {} if is_overridden else {f"{owner}.optim.lr_warmup_ratio": value}

    return convert


def or_zero(key: str) -> Convert:
    """The value as `key`; null becomes 0."""
    return lambda value, config: {key: 0.0 if value is None else value}


def frequency(key: str) -> Convert:
    """A positive number as `key`; EasyR1's -1 has no equivalent."""

    def convert(value: Any, config: EasyR1Config) -> Assignments:
        if int(value) < 1:
            raise NoEquivalent(f"{key} must be 1 or more; it keeps its default")
        return {key: value}

    return convert


def save_frequency(value: Any, config: EasyR1Config) -> Assignments:
    """A checkpoint every so many steps and at the end of the run, but not at the ends of epochs. EasyR1's -1, only at
    the end of the run, has no equivalent."""
    return {**frequency("trainer.save_freq")(value, config), "trainer.save_on_epoch_end": False}


def validation_frequency(value: Any, config: EasyR1Config) -> Assignments:
    """The frequency of validations; 0 or less never validates."""
    return {"trainer.val_freq": int(value) if int(value) > 0 else -1}


def validation_sampling(value: Any, config: EasyR1Config) -> Assignments:
    """How validation samples: as in training, except for the values given here."""
    override = dict(value or {})
    sampling: dict[str, Any] = {
        f"evaluation.{name}": override.pop(name, config[f"worker.rollout.{name}"])
        for name in ("n", "temperature", "top_p")
    }
    sampling["evaluation.modes"] = ["sampled"]
    if override:
        raise NoEquivalent(f"evaluation has n, temperature and top_p, not {', '.join(override)}", sampling)
    return sampling


def trackers(value: Any, config: EasyR1Config) -> Assignments:
    """Each logger as a key of its own; `file` is always written."""
    names = [value] if isinstance(value, str) else list(value)
    assignments: dict[str, Any] = {name: True for name in ("console", "swanlab", "tensorboard") if name in names}
    if "mlflow" not in names:
        assignments["mlflow_uri"] = None
    if "wandb" in names:
        assignments["wandb"] = {"project": config["trainer.project_name"]}
    return {f"tracking.{name}": setting for name, setting in assignments.items()}


def eager(value: Any, config: EasyR1Config) -> Assignments:
    """`auto` in place of false: EasyR1 runs on GPUs only, and on a CPU compiling takes minutes and gains nothing."""
    return {"rollout.enforce_eager": True if value else "auto"}


def offload(value: Any, config: EasyR1Config) -> Assignments:
    """What the trainer keeps in the host's memory; `auto` in place of nothing, because one GPU has less room."""
    if not value:
        return {"trainer.offload": "auto"}
    return {"trainer.offload": "all" if config["worker.actor.offload.offload_params"] else "optimizer"}


def sharding(value: Any, config: EasyR1Config) -> Assignments:
    """How the weights are spread: over groups of `value` devices, or over all of them if it is not positive."""
    per_machine = int(config["trainer.n_gpus_per_node"])
    devices = int(config["trainer.nnodes"]) * per_machine
    if value < 1 or value >= devices:
        return {"cluster.sharding": "full"}
    if value not in (1, per_machine):
        raise NoEquivalent(f"weights are spread over all devices, over the {per_machine} of a machine, or not at all")
    return {"cluster.sharding": "none" if value == 1 else "hybrid"}


def engine_format(value: Any, config: EasyR1Config) -> Assignments:
    """Raises NoEquivalent where vLLM's number format is not the trainer's (bfloat16 where Sightline does not have
    EasyR1's)."""
    if _NUMBER_FORMATS.get(value) != _NUMBER_FORMATS.get(config["worker.actor.fsdp.mp_param_dtype"], "bfloat16"):
        raise NoEquivalent("generator and trainer have the same number format (model.dtype), so that they agree")
    return {}


def longest_sequence(value: Any, config: EasyR1Config) -> Assignments:
    """Raises NoEquivalent for a limit below the longest prompt and longest response together."""
    if value is not None and value < config["data.max_prompt_length"] + config["data.max_response_length"]:
        raise NoEquivalent("the generator always has room for the longest prompt with the longest response")
    return {}


def number_format(value: Any, config: EasyR1Config) -> Assignments:
    """The number format of forward and backward passes."""
    return {"model.dtype": "float32" if _known_format(value) == "float32" else "bfloat16"}


def stored_format(value: Any, config: EasyR1Config) -> Assignments:
    """No key: master weights are always float32. Raises NoEquivalent for an unknown format."""
    if value is not None:
        _known_format(value)
    return {}


def _known_format(value: Any) -> str:
    if value not in _NUMBER_FORMATS:
        raise NoEquivalent("model.dtype is float32 or bfloat16")
    return _NUMBER_FORMATS[value]


_NUMBER_FORMATS = {"fp32": "float32", "float32": "float32", "bf16": "bfloat16", "bfloat16": "bfloat16"}


def when_lora(key: str) -> Convert:
    """The value as `key`, if adapters are trained."""
    return lambda value, config: {key: value} if _has_lora(config) else {}


def lora_rank(value: Any, config: EasyR1Config) -> Assignments:
    """The rank; 0 means no adapters."""
    return {"model.lora.rank": value} if _has_lora(config) else {"model.lora": None}


def lora_targets(value: Any, config: EasyR1Config) -> Assignments:
    """The layers with adapters. A text of name endings, separated by commas, becomes a list, because in Sightline a
    text is a regular expression."""
    if not _has_lora(config):
        return {}
    is_list_of_names = isinstance(value, str) and value != "all-linear"
    names = [name.strip() for name in value.split(",") if name.strip()] if is_list_of_names else value
    return {"model.lora.target_modules": names}


def frozen_vision_tower(value: Any, config: EasyR1Config) -> Assignments:
    """Whether the vision tower is frozen; with adapters every weight is frozen anyway."""
    return {"model.freeze_vision_tower": bool(value) and not _has_lora(config)}


def _has_lora(config: EasyR1Config) -> bool:
    return int(config["worker.actor.model.lora.rank"]) > 0


def has_option(choices: Choices, kind: object, name: str) -> bool:
    """Whether there is a section of this `type`, and it has a key of this name."""
    return isinstance(kind, str) and kind in choices and name in choices[kind].model_fields
