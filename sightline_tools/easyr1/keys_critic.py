"""EasyR1's `worker.critic` section, without the keys of sharding and offloading."""

from sightline_tools.easyr1.conversions import (
    or_zero,
    same_body,
    under,
    warmup_ratio,
    warmup_steps,
    when_critic,
    whole_critic,
)
from sightline_tools.easyr1.key import Convert, Key, converted, needless

_AS_POLICY = "The same as for the policy."


def _with_critic(name: str, default: object, remark: str = "", *, convert: Convert | None = None) -> Key:
    """A key with the same name in Sightline, which is taken over where EasyR1's `algorithm.adv_estimator` is gae."""
    key = f"critic.{name}"
    return converted(name, default, when_critic(convert or under(key)), key, remark=remark)


CRITIC: tuple[Key, ...] = (
    needless("strategy", "fsdp", "Has no effect in EasyR1."),
    _with_critic(
        "global_batch_size", 256, "This section is taken over if adv_estimator is gae, with which EasyR1 itself stops."
    ),
    _with_critic("micro_batch_size_per_device_for_update", 4, "A token budget, as for the actor."),
    _with_critic("micro_batch_size_per_device_for_experience", 16, "A token budget, as for the actor."),
    _with_critic("max_grad_norm", 1.0),
    _with_critic("cliprange_value", 0.5),
    _with_critic("loss_avg_mode", "token"),
    _with_critic("ppo_epochs", 1),
    needless("padding_free", False, "Sequences are always packed into a token budget, each group's prompt once."),
    needless("dynamic_batching", True, "Sequences are always packed into a token budget, each group's prompt once."),
    needless("ulysses_size", 1, _AS_POLICY),
    needless("use_torch_compile", True, "There is no output head to compile."),
    converted(
        "model.model_path",
        None,
        when_critic(same_body),
        remark="The critic has the body of the model that RL starts from.",
    ),
    needless("model.tokenizer_path", None, _AS_POLICY),
    needless("model.override_config", {}, _AS_POLICY),
    needless("model.enable_gradient_checkpointing", True, _AS_POLICY),
    needless("model.trust_remote_code", True, _AS_POLICY),
    converted("model.freeze_vision_tower", False, when_critic(whole_critic), remark="All of a critic is trained."),
    _with_critic("optim.lr", 1e-6),
    _with_critic("optim.betas", (0.9, 0.999)),
    _with_critic("optim.weight_decay", 1e-2),
    _with_critic("optim.strategy", "adamw"),
    converted(
        "optim.lr_warmup_ratio",
        0.0,
        when_critic(warmup_ratio("critic")),
        "critic.optim.lr_warmup_ratio",
        remark="As for the actor.",
    ),
    converted(
        "optim.lr_warmup_steps",
        None,
        when_critic(warmup_steps("critic")),
        "critic.optim.lr_warmup_steps",
        remark="As for the actor.",
    ),
    _with_critic("optim.min_lr_ratio", None, "Null is 0.", convert=or_zero("critic.optim.min_lr_ratio")),
    _with_critic("optim.lr_scheduler_type", "constant"),
)
