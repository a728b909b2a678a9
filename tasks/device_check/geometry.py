"""A run of the configured model with random weights: its sizes, lengths, batches and settings, on rows made here."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from rl_core.config.loading import load_config
from rl_core.config.model import TinyModel
from rl_core.config.run import RunConfig
from rl_core.data.preparation import prepare_dataset
from rl_core.data.prompts import corpus
from rl_core.device import computing_device
from rl_core.families.own import keep_own_family
from rl_core.families.registry import family_of
from rl_core.families.vision import Vision
from rl_core.models.loading import banned_token_ids
from rl_core.models.random_checkpoint import write_random_checkpoint
from rl_core.planning.batches import WorkerShare, update_token_budget
from rl_core.planning.gpu import Card, Gpu, card_named, find_gpu
from rl_core.planning.memory import memory_forecast
from rl_core.planning.memory_rows import MemoryForecast
from rl_core.planning.model_sizes import ModelSizes, config_fields, read_sizes
from rl_core.planning.settings import resolve_auto
from rl_core.planning.step_time import Lengths
from rl_core.planning.update_memory import PATCHES_A_TOKEN
from rl_core.progress import SilentProgress
from rl_core.run_directory import RunDirectory
from rl_core.types import Group
from tasks.device_check.check import Setting
from tasks.device_check.trial import Trial
from tasks.preparation import write_initial_model

_PROMPT_SHARE: Final = 0.75
"""Share of the longest prompt that an image, or a text model's question, fills, up to `_LARGEST_SIDE`."""

_LARGEST_SIDE: Final = 1008
"""Largest side of a made image, in pixels."""

_PASSES: Final = 2
"""Micro-batches of an update: gradients are there from the second one on."""

_MOST_PROMPTS: Final = 256

_ANSWERED: Final = 16
"""Prompts that are answered where the generator is checked."""


@dataclass(frozen=True, kw_only=True)
class Geometry(Trial):
    """A prepared run of the configured model. `gpu` is None on a CPU; `response` is the number of tokens of each
    response of which its update is made, None if it has no update."""

    sizes: ModelSizes
    gpu: Gpu | None
    response: int | None

    @property
    def card(self) -> Card | None:
        """What is published of the GPU; None on a CPU, and where nothing is."""
        return None if self.gpu is None else card_named(self.gpu.name)

    @property
    def memory_is_known(self) -> bool:
        """Whether the plan knows how much memory the device has, and so the size of the KV cache."""
        return self.gpu is None or self.gpu.memory_gib is not None

    @property
    def forecast(self) -> MemoryForecast:
        """What the plan says about its memory, with responses of its length."""
        gpu_gib = None if self.gpu is None else self.gpu.memory_gib or 0.0
        return memory_forecast(self.config, self.sizes, gpu_gib=gpu_gib, response=self.response)

    @cached_property
    def banned(self) -> frozenset[int]:
        """Tokens that must never be sampled."""
        return frozenset(banned_token_ids(self.run.initial_model))


def prepare_geometry(setting: Setting, *, response: int | None = None) -> Geometry:
    """Write the model and rows of `setting.config` into the check's folder, and resolve every setting that is `auto`.
    With `response`, the prompts of an update with responses of this length fill its passes; without, prompts are only
    answered. Raises ValueError where nothing is known of the model's sizes, or no model can be built of them."""
    assert setting.config is not None, "a check of the configured model without a config"
    run = RunDirectory(setting.folder / "run")
    configured = load_config(setting.config)
    keep_own_family(configured.model.family)
    config = _with_made_rows(configured, setting.folder)
    run.initial_model.mkdir(parents=True)
    _write_model(config, run.initial_model)
    sizes = read_sizes(run.initial_model / "config.json")
    if sizes is None:
        raise ValueError(f"{run.initial_model}: the model was not built in time; try again")
    gpu = find_gpu(config.cluster.device)
    resolved = resolve_auto(config, sizes, gpu).config
    answered = _with_prompts(resolved, _ANSWERED)
    trial = Geometry(config=answered, run=run, in_process=True, sizes=sizes, gpu=gpu, response=response)
    _prepare_rows(trial)
    if response is None:
        return trial
    length = float(np.mean([len(prompt.token_ids) for prompt in trial.prompts]))
    trial = replace(trial, config=_with_prompts(resolved, _prompts_of_passes(resolved, length, response)))
    _prepare_rows(trial)
    return trial


def _prepare_rows(trial: Geometry) -> None:
    folder = trial.run.initial_model
    prepare_dataset(trial.config.data, model_folder=folder, out=trial.run.data, progress=SilentProgress())


def _write_model(config: RunConfig, folder: Path) -> None:
    source = config.model.source
    if isinstance(source, TinyModel):
        write_initial_model(config, folder)
        return
    fields = config_fields(source)
    if fields is None:
        raise ValueError(
            f"model.source.path: the sizes of {source.path} are not known here; download its config.json first: "
            f"hf download {source.path} config.json"
        )
    # Beside workers in other processes, this one leaves the GPUs alone.
    device = computing_device() if config.cluster.is_alone else torch.device("cpu")
    dtype = getattr(torch, config.model.dtype)
    write_random_checkpoint(fields, folder, corpus=corpus(config.data, []), dtype=dtype, device=device)


def _with_made_rows(config: RunConfig, folder: Path) -> RunConfig:
    """The config with rows that need no file: rendered scenes, or questions for a text model."""
    fields = config.model_dump()
    known = config_fields(config.model.source)
    vision = None if known is None else family_of(known).vision
    made = _texts(config, folder) if vision is None else _scenes(config, vision)
    unset = ("prompt_template", "system_prompt", "source_weights", "curriculum")
    data = fields["data"] | made | dict.fromkeys(unset)
    reward = {"function": "length", "kwargs": {"target_length": 2, "max_length": config.rollout.max_response_length}}
    return RunConfig.model_validate(fields | {"data": data, "cold_start": None, "reward": reward})


def _scenes(config: RunConfig, vision: Vision) -> Mapping[str, Any]:
    """Scenes whose images fill a part of the longest prompt, or are as large as allowed."""
    token = math.isqrt(PATCHES_A_TOKEN) * vision.patch_size
    most = min(math.isqrt(config.data.max_pixels), _LARGEST_SIDE) // token
    side = token * max(1, min(most, math.isqrt(int(_PROMPT_SHARE * config.data.max_prompt_length))))
    scenes = {"type": "counting", "size": _MOST_PROMPTS, "image_size": side}
    return {"train": scenes | {"scene_seed": 1}, "validation": scenes | {"scene_seed": 2, "size": 1}}


def _texts(config: RunConfig, folder: Path) -> Mapping[str, Any]:
    """Questions that fill a part of the longest prompt: a space and two digits are three tokens."""
    words = int(_PROMPT_SHARE * config.data.max_prompt_length / 3)

    def rows(name: str, first: int, count: int) -> Mapping[str, Any]:
        path = folder / f"{name}.jsonl"
        draws = (np.random.default_rng(first + number).integers(10, 99, words) for number in range(count))
        lines = (json.dumps({"problem": " ".join(map(str, draw)), "answer": "1"}) for draw in draws)
        path.write_text("\n".join(lines) + "\n")
        return {"type": "local", "path": str(path), "columns": {"image_key": None, "video_key": None}}

    return {"train": rows("train", 0, _MOST_PROMPTS), "validation": rows("validation", _MOST_PROMPTS, 1)}


def _with_prompts(config: RunConfig, prompts: int) -> RunConfig:
    """The config with this many prompts, all in one optimizer step."""
    fields = config.model_dump()
    for owner in ("actor", "critic"):
        if fields[owner] is not None:
            fields[owner] |= {"global_batch_size": prompts, "ppo_epochs": 1}
    train = fields["data"]["train"]
    train |= {"size" if train["type"] == "counting" else "limit": prompts}
    fields["data"] |= {"rollout_batch_size": prompts, "train": train}
    return RunConfig.model_validate(fields)


def _prompts_of_passes(config: RunConfig, prompt: float, response: int) -> int:
    """Groups of prompts of this mean length with which every learner has `_PASSES` full micro-batches."""
    group = prompt + config.rollout.n * response
    of_learner = math.ceil(_PASSES * update_token_budget(config) / group)
    return min(_MOST_PROMPTS, of_learner * WorkerShare.of(config).learners)


def made_lengths(groups: Sequence[Group]) -> Lengths:
    """The lengths of groups whose prompts are an image and a short question, or a question alone."""
    responses = [len(rollout.response_ids) for group in groups for rollout in group.rollouts]
    prompt = float(np.mean([len(group.prompt.token_ids) for group in groups]))
    return Lengths(prompt=prompt, response=float(np.mean(responses)), longest=float(max(responses)), image_share=1.0)
