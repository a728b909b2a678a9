"""EasyR1's `data` and `algorithm` sections (its `trainer/config.py`)."""

from sightline_tools.easyr1.conversions import (
    kl_type,
    leaves_a_remainder,
    overlong,
    when_adaptive,
    when_estimator_reads,
    when_filtering,
    when_kl,
    without_filter,
    without_kl,
)
from sightline_tools.easyr1.files import data_source, file_at, image_folder
from sightline_tools.easyr1.key import Difference, Key, converted, needless, same

_READ = "If the estimator has this option."

DATA: tuple[Key, ...] = (
    converted(
        "data.train_files",
        "",
        data_source("data.train"),
        "data.train",
        remark="The split of a folder is `{type: hub, name: folder@split}`.",
    ),
    converted("data.val_files", "", data_source("data.validation"), "data.validation"),
    same("data.prompt_key", "prompt", "data.train.columns.prompt_key", "data.validation.columns.prompt_key"),
    same("data.answer_key", "answer", "data.train.columns.answer_key", "data.validation.columns.answer_key"),
    same("data.image_key", "images", "data.train.columns.image_key", "data.validation.columns.image_key"),
    same(
        "data.video_key",
        "videos",
        "data.train.columns.video_key",
        "data.validation.columns.video_key",
        remark="A row may have images and videos.",
    ),
    converted(
        "data.image_dir",
        None,
        image_folder,
        "data.train.media_dir",
        "data.validation.media_dir",
        remark="With null, paths start from the folder of the data file.",
    ),
    same(
        "data.video_fps",
        2.0,
        "data.video_fps",
        remark="Frames are evenly spaced from the start, at most data.video_max_frames of them.",
    ),
    same("data.max_prompt_length", 512, "data.max_prompt_length"),
    same("data.max_response_length", 512, "rollout.max_response_length"),
    same("data.rollout_batch_size", 512, "data.rollout_batch_size"),
    converted(
        "data.mini_rollout_batch_size",
        None,
        when_filtering("algorithm.online_filtering.mini_rollout_batch_size"),
        "algorithm.online_filtering.mini_rollout_batch_size",
        remark="If there is group filtering.",
        differs=[
            Difference(
                leaves_a_remainder,
                "A step takes rollout_batch_size prompts; EasyR1 draws them in whole mini batches and discards the "
                "rest.",
            )
        ],
    ),
    needless("data.val_batch_size", -1, "All held-out rows are asked at once."),
    converted(
        "data.format_prompt",
        None,
        file_at("data.prompt_template"),
        "data.prompt_template",
        remark="A missing file is an error; EasyR1 continues without it.",
    ),
    converted(
        "data.override_chat_template",
        None,
        file_at("data.override_chat_template"),
        "data.override_chat_template",
        remark="The saved processor gets it too.",
    ),
    same("data.shuffle", True, "data.shuffle", remark="The order differs from EasyR1's."),
    same("data.seed", 1, "seed", remark="It keys every random draw of a run."),
    same("data.min_pixels", 262_144, "data.min_pixels"),
    same("data.max_pixels", 4_194_304, "data.max_pixels"),
    converted(
        "data.filter_overlong_prompts",
        True,
        overlong,
        "data.overlong",
        remark="`true` is `filter`; `false` is `error`: a long prompt stops the preparation.",
    ),
    needless("data.filter_overlong_prompts_workers", 16, "Rows are prepared once and kept."),
)

ALGORITHM: tuple[Key, ...] = (
    converted("algorithm.gamma", 1.0, when_estimator_reads("gamma"), "algorithm.advantage.gamma", remark=_READ),
    converted("algorithm.lam", 1.0, when_estimator_reads("lam"), "algorithm.advantage.lam", remark=_READ),
    same(
        "algorithm.adv_estimator",
        "grpo",
        "algorithm.advantage.type",
        remark="A group of equal rewards gets advantages of exactly zero; in EasyR1 rounding errors remain.",
    ),
    converted("algorithm.disable_kl", False, without_kl, "algorithm.kl", remark="`true` is `algorithm.kl: null`."),
    converted(
        "algorithm.use_kl_loss",
        False,
        when_kl("algorithm.kl.use_kl_loss"),
        "algorithm.kl.use_kl_loss",
    ),
    converted("algorithm.kl_penalty", "kl", when_kl("algorithm.kl.penalty"), "algorithm.kl.penalty"),
    converted(
        "algorithm.kl_coef",
        1e-3,
        when_kl("algorithm.kl.coef"),
        "algorithm.kl.coef",
        remark="0 is `algorithm.kl: null`.",
    ),
    converted(
        "algorithm.kl_type",
        "fixed",
        kl_type,
        "algorithm.kl.adaptive",
        remark="`adaptive` adapts the KL in the reward only, as in EasyR1.",
    ),
    converted(
        "algorithm.kl_horizon",
        1e4,
        when_adaptive("algorithm.kl.adaptive.horizon"),
        "algorithm.kl.adaptive.horizon",
    ),
    converted(
        "algorithm.kl_target", 0.1, when_adaptive("algorithm.kl.adaptive.target"), "algorithm.kl.adaptive.target"
    ),
    converted(
        "algorithm.online_filtering",
        False,
        without_filter,
        "algorithm.online_filtering",
        remark="`false` is null. If a draw leaves no group, more prompts are drawn; EasyR1 stops. Groups beyond the "
        "batch are discarded, as in EasyR1.",
    ),
    converted(
        "algorithm.filter_key",
        "overall",
        when_filtering("algorithm.online_filtering.filter_key"),
        "algorithm.online_filtering.filter_key",
    ),
    converted(
        "algorithm.filter_low",
        0.01,
        when_filtering("algorithm.online_filtering.filter_low"),
        "algorithm.online_filtering.filter_low",
    ),
    converted(
        "algorithm.filter_high",
        0.99,
        when_filtering("algorithm.online_filtering.filter_high"),
        "algorithm.online_filtering.filter_high",
    ),
)
