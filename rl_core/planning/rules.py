"""Rules between values of the configuration that no single field can express."""

from collections.abc import Iterator

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # documented, and imported lazily

from rl_core.config.run import RunConfig
from rl_core.config.tolerances import AGREEMENT, PROBE, agreement_bounds, merge_tolerance
from rl_core.planning.algorithm_rules import algorithm_problems
from rl_core.planning.model_rules import model_problems
from rl_core.planning.reward_rules import reward_problems
from rl_core.problem import Problem
from rl_core.section import problems_in

# The least difference of log-probs between two processes with the same bfloat16 weights: of a token, and of the mean.
_BFLOAT16_GAP = 1e-2
_BFLOAT16_MEAN_GAP = 1e-3


def value_problems(config: RunConfig) -> list[Problem]:
    """Every rule between values that the config breaks."""
    return [
        *problems_in(config),
        *_trainer_problems(config),
        *_tolerance_problems(config),
        *_data_problems(config),
        *_optimizer_problems(config),
        *model_problems(config),
        *algorithm_problems(config),
        *reward_problems(config),
        *_evaluation_problems(config),
        *_tracking_problems(config),
    ]


def _trainer_problems(config: RunConfig) -> Iterator[Problem]:
    trainer = config.trainer
    if trainer.val_freq == 0:
        yield Problem(
            where="trainer.val_freq",
            what="0 is neither a number of steps nor -1 (never)",
            fix="set -1 to never validate, or validate every so many steps",
        )
    if config.merge.checkpoint == "best" and trainer.val_freq < 0:
        # The steps of an epoch are not known here, but there is one at least, and the last step is always saved.
        validated = min(trainer.save_freq, trainer.max_steps or trainer.total_epochs)
        yield Problem(
            where="merge.checkpoint",
            what="`best` is chosen by validation, and trainer.val_freq -1 never validates",
            fix=f"set trainer.val_freq to {validated}, or merge.checkpoint to last",
        )
    if trainer.save_model_only:
        yield Problem(
            where="trainer.save_model_only",
            what="a run that is killed continues without the optimizer's moments, and so computes other numbers",
            fix="set it to false unless disk is short",
            fatal=False,
        )


def _tolerance_problems(config: RunConfig) -> Iterator[Problem]:
    """Tolerances that are too small for bfloat16, which rounds to three digits: they would stop every run."""
    if config.model.dtype != "bfloat16":
        return
    found, usual = agreement_bounds(config), AGREEMENT["bfloat16"]
    bounds = {
        "rollout.max_log_prob_gap": (found.percentile, _BFLOAT16_GAP, usual.percentile),
        "rollout.max_mean_log_prob_gap": (found.mean, _BFLOAT16_MEAN_GAP, usual.mean),
        "merge.probe_tolerance": (merge_tolerance(config).largest, _BFLOAT16_GAP, PROBE["bfloat16"]),
    }
    for key, (bound, reproduced, advised) in bounds.items():
        if bound < reproduced:
            yield Problem(
                where=key,
                what=f"{bound:g} is less than what model.dtype bfloat16 reproduces (about {reproduced:g})",
                fix=f"set it to {advised:g}, or model.dtype to float32",
            )


def _data_problems(config: RunConfig) -> Iterator[Problem]:
    data = config.data
    if data.min_pixels > data.max_pixels:
        yield Problem(
            where="data.min_pixels",
            what=f"{data.min_pixels} is above data.max_pixels {data.max_pixels}, so no image has an allowed size",
            fix="lower it, or raise data.max_pixels",
        )


def _optimizer_problems(config: RunConfig) -> Iterator[Problem]:
    optimizers = {"actor.optim": config.actor.optim}
    if config.critic is not None:
        optimizers["critic.optim"] = config.critic.optim
    if config.cold_start is not None:
        optimizers["cold_start.optim"] = config.cold_start.optim
    for key, optim in optimizers.items():
        if not all(0.0 <= beta < 1.0 for beta in optim.betas):
            yield Problem(
                where=f"{key}.betas", what=f"{list(optim.betas)} are no decay rates", fix="set both in [0, 1)"
            )
        if optim.lr_warmup_steps and optim.lr_warmup_ratio:
            yield Problem(
                where=f"{key}.lr_warmup_ratio",
                what=f"{optim.lr_warmup_ratio:g} of the run and lr_warmup_steps {optim.lr_warmup_steps} are two "
                "lengths of the same warm-up",
                fix="set one of them to 0",
            )
    cold_start = config.cold_start
    if cold_start is not None and cold_start.optim.lr_warmup_steps >= cold_start.steps:
        yield Problem(
            where="cold_start.optim.lr_warmup_steps",
            what=f"a warm-up of {cold_start.optim.lr_warmup_steps} steps never ends within {cold_start.steps} steps",
            fix=f"set it to {cold_start.steps // 10} or so",
            fatal=False,
        )


def _evaluation_problems(config: RunConfig) -> Iterator[Problem]:
    modes = config.evaluation.modes
    if not modes or len(set(modes)) < len(modes):
        yield Problem(
            where="evaluation.modes",
            what=f"{list(modes)} must name at least one pass, and none twice",
            fix="set [greedy], [sampled] or both",
        )


def _tracking_problems(config: RunConfig) -> Iterator[Problem]:
    uri = config.tracking.mlflow_uri
    is_folder = uri is not None and (uri.startswith("file:") or (":" not in uri and uri != "databricks"))
    if is_folder:
        yield Problem(
            where="tracking.mlflow_uri",
            what=f"{uri!r} is a folder, and MLflow no longer keeps runs in folders",
            fix="give a database (sqlite:///mlflow.db), a server (http://host:port), or null",
        )
    if config.merge.push is not None and not _is_hub_name(config.merge.push):
        yield Problem(
            where="merge.push",
            what=f"{config.merge.push!r} cannot be the name of a repository on the hub",
            fix="write it as owner/name, in letters, digits, '-', '_' and '.'",
        )


def _is_hub_name(name: str) -> bool:
    """Whether the hub accepts this text as owner/name."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return "/" in name
