"""The kinds of values that EasyR1's keys have. The import refuses what EasyR1's own reader would refuse."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rl_core.config.yaml_text import NotYaml, parse_yaml

OPTIONAL: Final[Mapping[str, type]] = {
    "data.mini_rollout_batch_size": int,
    "data.format_prompt": str,
    "data.override_chat_template": str,
    "data.image_dir": str,
    "worker.actor.model.model_path": str,
    "worker.actor.model.tokenizer_path": str,
    "worker.actor.model.lora.exclude_modules": str,
    "worker.actor.optim.lr_warmup_steps": int,
    "worker.actor.optim.min_lr_ratio": float,
    "worker.actor.fsdp.torch_dtype": str,
    "worker.critic.model.model_path": str,
    "worker.critic.model.tokenizer_path": str,
    "worker.critic.optim.lr_warmup_steps": int,
    "worker.critic.optim.min_lr_ratio": float,
    "worker.critic.fsdp.torch_dtype": str,
    "worker.ref.fsdp.torch_dtype": str,
    "worker.rollout.max_model_len": int,
    "worker.reward.reward_function": str,
    "worker.reward.reward_type": str,
    "trainer.max_steps": int,
    "trainer.save_checkpoint_path": str,
    "trainer.load_checkpoint_path": str,
    "trainer.ray_timeline": str,
}
"""Keys that may be null -> the type of their other values."""

_AVERAGING: Final = ("token", "seq")
_SCHEDULES: Final = ("constant", "cosine")
_OPTIMIZERS: Final = ("adamw", "adamw_bf16")

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "algorithm.adv_estimator": ("gae", "grpo", "grpo_passk", "reinforce_plus_plus", "remax", "rloo"),
    "algorithm.kl_penalty": ("kl", "abs", "mse", "low_var_kl", "full"),
    "algorithm.kl_type": ("fixed", "adaptive"),
    "worker.actor.loss_type": ("default", "gspo", "gspo_token", "cispo", "sapo"),
    "worker.actor.loss_avg_mode": _AVERAGING,
    "worker.actor.optim.lr_scheduler_type": _SCHEDULES,
    "worker.actor.optim.strategy": _OPTIMIZERS,
    "worker.critic.loss_avg_mode": _AVERAGING,
    "worker.critic.optim.lr_scheduler_type": _SCHEDULES,
    "worker.critic.optim.strategy": _OPTIMIZERS,
    "worker.reward.reward_type": ("batch", "sequential"),
    "trainer.logger": ("console", "file", "mlflow", "swanlab", "tensorboard", "wandb"),
}
"""Keys for which EasyR1 accepts certain values only."""

_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")


def read_value(name: str, value: Any, default: Any) -> Any:
    """The value of the key `name` as EasyR1 reads it: it accepts "1e-6" as a number and "yes" as true.

    Raises:
        ValueError: the key does not accept the value; the message says what it accepts.
    """
    if isinstance(value, str) and _REFERENCE.search(value):
        raise ValueError("names another key or variable: write the value itself")
    read = None if value is None and name in OPTIONAL else _of_kind(value, OPTIONAL.get(name) or type(default))
    if isinstance(read, list) and all(isinstance(one, float) for one in default):
        read = _numbers(read, len(default))
    allowed = CHOICES.get(name)
    if allowed and (unknown := [one for one in _listed(read) if one not in allowed]):
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(allowed)}")
    return read


def _listed(value: Any) -> Sequence[Any]:
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)


def _of_kind(value: Any, kind: type) -> Any:
    if kind is bool:
        return _truth(value)
    if kind in (int, float):
        return _number(value, whole=kind is int)
    if kind is str:
        return _text(value)
    if kind is tuple:
        return _list(value)
    if not isinstance(value, Mapping) and value is not None:
        raise ValueError("must be a mapping of names and values")
    return value or {}


def _truth(value: Any) -> bool:
    text = str(value).lower()
    if isinstance(value, bool | int | str) and text in (*_TRUE, *_FALSE):
        return text in _TRUE
    raise ValueError("must be true or false")


def _number(value: Any, *, whole: bool) -> int | float:
    kind = "a whole number" if whole else "a number"
    if isinstance(value, str):
        try:
            value = parse_yaml(value)
        except NotYaml:
            raise ValueError(f"must be {kind}") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"must be {kind}")
    if whole and value != int(value):
        raise ValueError(f"must be {kind}")
    return int(value) if whole else value


def _numbers(values: Sequence[Any], length: int) -> list[int | float]:
    if len(values) != length:
        raise ValueError(f"must be {length} numbers")
    return [_number(value, whole=False) for value in values]


def _text(value: Any) -> str:
    if value is None or isinstance(value, Mapping | list | tuple):
        raise ValueError("must be a text")
    return str(value)


def _list(value: Any) -> list[Any]:
    if value is None or isinstance(value, Mapping):
        raise ValueError("must be a list")
    return list(value) if isinstance(value, list | tuple) else [value]
