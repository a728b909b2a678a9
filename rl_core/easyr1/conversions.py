"""Values that are written otherwise, or counted in other units, than in EasyR1."""

from typing import Any

from rl_core.algorithms.estimators import ESTIMATORS
from rl_core.algorithms.losses import LOSSES
from rl_core.choice import has_option
from rl_core.config.run import experiment_name
from rl_core.easyr1.key import Assignments, Convert, EasyR1Config, NoEquivalent


def experiment(value: Any, config: EasyR1Config) -> Assignments:
    """A name of lower-case letters, digits and hyphens."""
    return {"experiment": experiment_name(str(value), otherwise="easyr1")}


def overlong(value: Any, config: EasyR1Config) -> Assignments:
    """Long prompts are left out; they are never cut."""
    if value:
        return {"data.overlong": "filter"}
    raise NoEquivalent(
        "a prompt of more than data.max_prompt_length tokens stops the preparation; EasyR1 cuts its end off, and stops "
        "in the middle of a run where it has images",
        {"data.overlong": "error"},
    )


def when_kl(key: str) -> Convert:
    """The value under `key` where there is a KL term at all."""
    return lambda value, config: {key: value} if has_kl(config) else {}


def without_kl(value: Any, config: EasyR1Config) -> Assignments:
    """No reference where KL is off."""
    return {} if has_kl(config) else {"algorithm.kl": None}


def has_kl(config: EasyR1Config) -> bool:
    """Whether EasyR1 would use a reference: not when it is disabled, and a coefficient of 0 is as good as that."""
    return not config["algorithm.disable_kl"] and float(config["algorithm.kl_coef"]) > 0.0


def when_adaptive(key: str) -> Convert:
    """The value under `key` where the KL coefficient adapts: in the reward only, in EasyR1."""
    return lambda value, config: {key: value} if has_kl(config) and _is_adaptive(config) else {}


def kl_type(value: Any, config: EasyR1Config) -> Assignments:
    """A fixed coefficient says so; an adaptive one has a target and a horizon."""
    return {"algorithm.kl.adaptive": None} if has_kl(config) and not _is_adaptive(config) else {}


def _is_adaptive(config: EasyR1Config) -> bool:
    return bool(config["algorithm.kl_type"] == "adaptive" and not config["algorithm.use_kl_loss"])


def when_filtering(key: str) -> Convert:
    """The value under `key` where groups are filtered."""
    return lambda value, config: {key: value} if config["algorithm.online_filtering"] else {}


def leaves_a_rest(value: Any, config: EasyR1Config) -> bool:
    """Whether mini batches that no filter looks at do not fill a rollout batch exactly."""
    return not config["algorithm.online_filtering"] and bool(value) and config["data.rollout_batch_size"] % value > 0


def without_filter(value: Any, config: EasyR1Config) -> Assignments:
    """No filter where it is off."""
    return {} if value else {"algorithm.online_filtering": None}


def loss_type(value: Any, config: EasyR1Config) -> Assignments:
    """EasyR1's `default` is PPO's clip."""
    return {"algorithm.loss.type": _loss(config)}


def when_loss_reads(name: str) -> Convert:
    """The option where the loss has it; EasyR1's other losses do not look at it."""
    return lambda value, config: {f"algorithm.loss.{name}": value} if has_option(LOSSES, _loss(config), name) else {}


def when_estimator_reads(name: str) -> Convert:
    """The option where the advantage estimator has it; EasyR1's others do not look at it."""
    return lambda value, config: (
        {f"algorithm.advantage.{name}": value}
        if has_option(ESTIMATORS, config["algorithm.adv_estimator"], name)
        else {}
    )


def _loss(config: EasyR1Config) -> str:
    loss = str(config["worker.actor.loss_type"])
    return "ppo" if loss == "default" else loss


def when_critic(convert: Convert) -> Convert:
    """What `convert` makes where there is a critic at all."""
    return lambda value, config: convert(value, config) if _has_critic(config) else {}


def critic_warmup(value: Any, config: EasyR1Config) -> Assignments:
    """EasyR1 leaves the policy alone until then, whatever the algorithm."""
    if _has_critic(config):
        return {"trainer.critic_warmup": value}
    if value > 1:
        raise NoEquivalent("without a critic the policy learns from the first step on")
    return {}


def whole_critic(value: Any, config: EasyR1Config) -> Assignments:
    """Nothing to say where all of a critic is trained."""
    if value:
        raise NoEquivalent("all of a critic is trained")
    return {}


def _has_critic(config: EasyR1Config) -> bool:
    return bool(config["algorithm.adv_estimator"] == "gae")


def under(key: str) -> Convert:
    """The value under `key`."""
    return lambda value, config: {key: value}


def same_body(value: Any, config: EasyR1Config) -> Assignments:
    """Nothing to say where the critic starts from the policy's checkpoint."""
    if value not in (None, config["worker.actor.model.model_path"]):
        raise NoEquivalent("a critic starts from the model that the policy starts from")
    return {}


def optimizer_steps_a_step(config: EasyR1Config, owner: str) -> int:
    """Optimizer steps of one training step of the actor or the critic: EasyR1 moves its schedule once a training step,
    Sightline at each."""
    batches = int(config["data.rollout_batch_size"]) // int(config[f"worker.{owner}.global_batch_size"])
    return max(1, batches) * int(config[f"worker.{owner}.ppo_epochs"])


def warmup_steps(owner: str) -> Convert:
    """A number of training steps, in optimizer steps of the `owner`."""

    def convert(value: Any, config: EasyR1Config) -> Assignments:
        if value is None:
            return {}
        return {f"{owner}.optim.lr_warmup_steps": value * optimizer_steps_a_step(config, owner)}

    return convert


def warmup_ratio(owner: str) -> Convert:
    """A share of the run's training steps, where EasyR1 does not override it with lr_warmup_steps."""

    def convert(value: Any, config: EasyR1Config) -> Assignments:
        is_overridden = config[f"worker.{owner}.optim.lr_warmup_steps"] is not None
        return {} if is_overridden else {f"{owner}.optim.lr_warmup_ratio": value}

    return convert


def or_zero(key: str) -> Convert:
    """The value under `key`; null is 0."""
    return lambda value, config: {key: 0.0 if value is None else value}


def frequency(key: str) -> Convert:
    """A positive number of steps; EasyR1's -1 (the end of the run only) has no equivalent."""

    def convert(value: Any, config: EasyR1Config) -> Assignments:
        if int(value) < 1:
            raise NoEquivalent(f"{key} takes a number of 1 and more; its default was left")
        return {key: value}

    return convert


def validation_frequency(value: Any, config: EasyR1Config) -> Assignments:
    """0 and less validate never."""
    return {"trainer.val_freq": int(value) if int(value) > 0 else -1}


def validation_sampling(value: Any, config: EasyR1Config) -> Assignments:
    """How validation draws: the training's sampling, with these values laid over it."""
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
    """Each logger under its own key; `file` is always written."""
    names = [value] if isinstance(value, str) else list(value)
    assignments: dict[str, Any] = {name: True for name in ("console", "swanlab", "tensorboard") if name in names}
    if "mlflow" not in names:
        assignments["mlflow_uri"] = None
    if "wandb" in names:
        assignments["wandb"] = {"project": config["trainer.project_name"]}
    return {f"tracking.{name}": setting for name, setting in assignments.items()}


def eager(value: Any, config: EasyR1Config) -> Assignments:
    """EasyR1 runs on GPUs alone: what is to be compiled there takes minutes on a CPU and gains nothing."""
    return {"rollout.enforce_eager": True if value else "auto"}


def engine_format(value: Any, config: EasyR1Config) -> Assignments:
    """The engine has the trainer's number format, which is bfloat16 where EasyR1's does not exist here."""
    if _NUMBER_FORMATS.get(value) != _NUMBER_FORMATS.get(config["worker.actor.fsdp.mp_param_dtype"], "bfloat16"):
        raise NoEquivalent("the engine has the number format of the trainer (model.dtype), so that both agree")
    return {}


def longest_sequence(value: Any, config: EasyR1Config) -> Assignments:
    """The engine takes a longest prompt and a longest response together."""
    if value is not None and value < config["data.max_prompt_length"] + config["data.max_response_length"]:
        raise NoEquivalent("the engine always has room for a longest prompt with a longest response")
    return {}


def number_format(value: Any, config: EasyR1Config) -> Assignments:
    """Of the arithmetic."""
    return {"model.dtype": "float32" if _known_format(value) == "float32" else "bfloat16"}


def stored_format(value: Any, config: EasyR1Config) -> Assignments:
    """Nothing to set: the optimizer moves float32 numbers, whatever the arithmetic."""
    if value is not None:
        _known_format(value)
    return {}


def _known_format(value: Any) -> str:
    if value not in _NUMBER_FORMATS:
        raise NoEquivalent("model.dtype is float32 or bfloat16")
    return _NUMBER_FORMATS[value]


_NUMBER_FORMATS = {"fp32": "float32", "float32": "float32", "bf16": "bfloat16", "bfloat16": "bfloat16"}


def when_lora(key: str) -> Convert:
    """The value under `key` where adapters are trained."""
    return lambda value, config: {key: value} if _has_lora(config) else {}


def lora_rank(value: Any, config: EasyR1Config) -> Assignments:
    """A rank of 0 is no adapter."""
    return {"model.lora.rank": value} if _has_lora(config) else {"model.lora": None}


def lora_targets(value: Any, config: EasyR1Config) -> Assignments:
    """Name endings in one text, separated by commas, are a list; a text alone is a regular expression here."""
    if not _has_lora(config):
        return {}
    is_list_of_names = isinstance(value, str) and value != "all-linear"
    names = [name.strip() for name in value.split(",") if name.strip()] if is_list_of_names else value
    return {"model.lora.target_modules": names}


def frozen_vision_tower(value: Any, config: EasyR1Config) -> Assignments:
    """Adapters leave every weight frozen already."""
    return {"model.freeze_vision_tower": bool(value) and not _has_lora(config)}


def _has_lora(config: EasyR1Config) -> bool:
    return int(config["worker.actor.model.lora.rank"]) > 0
