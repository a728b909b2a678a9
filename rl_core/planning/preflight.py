"""The check of a configuration before a run: every problem that the configuration and the machine show, all at once.

Problems that only the data shows (bad rows, a reward that fails on true answers) are found where the data is read.
"""

import importlib.util

from rl_core.config.run import RunConfig
from rl_core.environment import usable_memory
from rl_core.planning.adapter_rules import pattern_problems
from rl_core.planning.attention_rules import attention_problems
from rl_core.planning.batches import divisibility_problems, row_problems
from rl_core.planning.cluster_rules import cluster_problems
from rl_core.planning.gpu import Gpu
from rl_core.planning.memory_rows import GIB
from rl_core.planning.memory_rules import memory_problems, position_problem
from rl_core.planning.model_rules import engine_problems, missing_part_problems
from rl_core.planning.model_sizes import ModelSizes, model_sizes
from rl_core.planning.rules import value_problems
from rl_core.planning.sequence_rules import head_problems
from rl_core.planning.source_rules import (
    file_problems,
    model_path_problems,
    offline_problems,
    overlap_problems,
    weight_problems,
)
from rl_core.planning.tensor_rules import generator_part_problems
from rl_core.problem import Problem


def check_config(config: RunConfig, *, gpu: Gpu | None = None) -> list[Problem]:
    """Every problem of the configuration on this machine, warnings included; empty when all is well.

    Args:
        config: The resolved configuration.
        gpu: The GPU to train on; None for a machine that trains on its CPU.
    """
    return [
        *value_problems(config),
        *divisibility_problems(config),
        *cluster_problems(config, gpu),
        *_known_row_problems(config),
        *file_problems(config),
        *overlap_problems(config),
        *weight_problems(config),
        *offline_problems(config),
        *_model_problems(config, gpu),
        *attention_problems(config.model, has_gpu=gpu is not None),
        *library_problems(),
        *tracker_problems(config),
    ]


def library_problems() -> list[Problem]:
    """Installed packages that are known to break a run."""
    if importlib.util.find_spec("deepspeed") is None:
        return []
    return [
        Problem(
            where="environment",
            what="deepspeed is installed, and transformers changes how it loads and saves checkpoints when it is",
            fix="remove it from this environment: pip uninstall deepspeed",
        )
    ]


def tracker_problems(config: RunConfig) -> list[Problem]:
    """Trackers whose library is not installed."""
    tracking = config.tracking
    asked = {"tensorboard": tracking.tensorboard, "wandb": tracking.wandb is not None, "swanlab": tracking.swanlab}
    return [
        Problem(
            where=f"tracking.{library}",
            what=f"the package {library} is not installed",
            fix=f".venv/bin/pip install -c constraints.txt -e '.[trackers]', or turn tracking.{library} off",
        )
        for library, is_asked in asked.items()
        if is_asked and importlib.util.find_spec(library) is None
    ]


def _known_row_problems(config: RunConfig) -> list[Problem]:
    """Problems with the number of training rows, where the source knows it before preparation (rendered scenes)."""
    rows = config.data.train.known_rows
    return [] if rows is None else row_problems(config, rows)


def _model_problems(config: RunConfig, gpu: Gpu | None) -> list[Problem]:
    problems = model_path_problems(config)
    if problems:
        return problems
    try:
        sizes = model_sizes(config.model.source)
    except ValueError as error:
        return [
            Problem(where="model.source", what=str(error), fix="name another checkpoint, or correct its config.json")
        ]
    if config.model.lora is not None and (endless := pattern_problems(config.model.lora, sizes)):
        return endless
    return [] if sizes is None else _size_problems(config, sizes, gpu)


def _size_problems(config: RunConfig, sizes: ModelSizes, gpu: Gpu | None) -> list[Problem]:
    return [
        *missing_part_problems(config.model, sizes),
        *engine_problems(config.model, sizes, on_gpu=gpu is not None),
        *head_problems(config.cluster, sizes),
        *generator_part_problems(config.cluster, sizes),
        *_memory_problems(config, sizes, gpu),
    ]


def _memory_problems(config: RunConfig, sizes: ModelSizes, gpu: Gpu | None) -> list[Problem]:
    host = usable_memory() / GIB
    if gpu is None:
        return memory_problems(config, sizes, available_gib=host, on_gpu=False)
    if gpu.memory_gib is not None:
        there = None if gpu.is_elsewhere else host
        return memory_problems(config, sizes, available_gib=gpu.memory_gib, on_gpu=True, host_gib=there)
    unknown = Problem(
        where="memory of the GPU",
        what="the driver does not tell how much there is, so it is not known whether the run fits",
        fix="compare it with the forecast of `sightline plan`",
        fatal=False,
    )
    too_long = position_problem(config, sizes)
    return [unknown] if too_long is None else [unknown, too_long]
