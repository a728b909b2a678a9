"""EasyR1's `trainer` section."""

from sightline_tools.easyr1.conversions import (
    critic_warmup,
    experiment,
    frequency,
    save_frequency,
    trackers,
    validation_frequency,
    when_filtering,
)
from sightline_tools.easyr1.key import Difference, Key, converted, missing, needless, same

_RUN_FOLDER = "A run's folder follows from its config (`runs/<experiment>-<digest>`)"

TRAINER: tuple[Key, ...] = (
    same("trainer.total_epochs", 15, "trainer.total_epochs"),
    same("trainer.max_steps", None, "trainer.max_steps"),
    converted(
        "trainer.project_name",
        "easy_r1",
        lambda value, config: {},
        "tracking.wandb.project",
        remark="If `wandb` is one of the loggers; in other trackers the experiment's name groups the runs.",
    ),
    converted(
        "trainer.experiment_name",
        "demo",
        experiment,
        "experiment",
        remark="Lower-case letters, digits and hyphens; other characters become hyphens.",
    ),
    converted(
        "trainer.logger",
        ("console", "wandb"),
        trackers,
        "tracking.console",
        "tracking.tensorboard",
        "tracking.wandb",
        "tracking.swanlab",
        "tracking.mlflow_uri",
        remark="`file` is always written (metrics.jsonl). Without `mlflow` its address is null.",
    ),
    same("trainer.nnodes", 1, "cluster.nodes", remark="Several machines need `cluster.address` too."),
    same("trainer.n_gpus_per_node", 8, "cluster.devices"),
    converted(
        "trainer.max_try_make_batch",
        20,
        when_filtering("algorithm.online_filtering.max_try_make_batch"),
        "algorithm.online_filtering.max_try_make_batch",
        remark="0 or less (no limit) has no equivalent.",
    ),
    converted("trainer.critic_warmup", 0, critic_warmup, "trainer.critic_warmup", remark="If there is a critic."),
    converted(
        "trainer.val_freq",
        -1,
        validation_frequency,
        "trainer.val_freq",
    ),
    same(
        "trainer.val_before_train",
        True,
        "trainer.val_before_train",
        remark="Only if val_freq is above 0; the base model is evaluated in any case.",
    ),
    missing(
        "trainer.val_only", False, False, remark="`sightline evaluate CONFIG` evaluates the base and the trained model."
    ),
    same(
        "trainer.val_generations_to_log",
        0,
        "tracking.val_generations_to_log",
        remark="Always the responses to the first held-out prompts.",
    ),
    converted(
        "trainer.save_freq",
        -1,
        save_frequency,
        "trainer.save_freq",
        "trainer.save_on_epoch_end",
        remark="The ends of epochs are not saved, as in EasyR1. -1 (only the end of the run) has no equivalent.",
    ),
    converted(
        "trainer.save_limit",
        -1,
        frequency("trainer.save_limit"),
        "trainer.save_limit",
        remark="The best checkpoint is kept besides, as in EasyR1. -1 (all) has no equivalent.",
        differs=[
            Difference(
                lambda value, config: config["trainer.val_freq"] > 0,
                "The best checkpoint is chosen by accuracy in validation; in EasyR1 by the mean of `overall`.",
            )
        ],
    ),
    same("trainer.save_model_only", False, "trainer.save_model_only"),
    needless("trainer.save_checkpoint_path", None, f"{_RUN_FOLDER}; `--runs-dir` names another folder for all runs."),
    missing("trainer.load_checkpoint_path", None, None, remark=f"{_RUN_FOLDER}, and the same command continues it."),
    missing(
        "trainer.find_last_checkpoint",
        True,
        True,
        remark="A run that has a checkpoint always continues from the last one; `sightline run --fresh` starts a new "
        "one.",
    ),
    needless("trainer.ray_timeline", None, "timings.jsonl has the seconds of every phase of every step."),
)
