"""Finds the problems of a run before it starts. Imports no Prefect, and torch only to try the data."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from rl_core.algorithms.estimators import CustomAdvantage
from rl_core.algorithms.filters import CustomFilter
from rl_core.algorithms.group_filter import GroupFilterSection, group_scores
from rl_core.algorithms.losses import CustomLoss
from rl_core.config.algorithm import AlgorithmConfig
from rl_core.config.cluster import ClusterConfig
from rl_core.config.model import TinyModel
from rl_core.config.run import RunConfig
from rl_core.data.manifest import DataManifest, SplitSummary
from rl_core.data.ordering import check_weighted_batches
from rl_core.files import files_below
from rl_core.planning.batches import prompts_a_draw, row_problems
from rl_core.planning.disk import check_free_disk, disk_forecast
from rl_core.planning.driver_rules import unusable_gpu
from rl_core.planning.gpu import Gpu, find_gpu
from rl_core.planning.hub import SECONDS_OF_RUN, HubAnswer, ask_hub, hub_problems
from rl_core.planning.model_sizes import model_sizes
from rl_core.planning.rules import check_config
from rl_core.problem import Problem
from rl_core.progress import SilentProgress
from rl_core.run_directory import RunDirectory
from rl_core.sources.rows import Row
from rl_core.sources.source import DataSource, Glance
from rl_core.types import Prompt, Score
from tasks.planning.source_glance import category_problems, glance_at, judged_name_problems, source_problems
from tasks.planning.text_problems import text_problems
from tasks.storage.address import VARIABLE, run_store, storage_settings

_ROWS_TRIED = 8
"""Number of rows of each source on whose true answers the reward is tried."""

_SOURCES = ("data.train", "data.validation", "cold_start.source")
"""Beginnings of the keys of the data sources."""

_NO_LIMIT = 1 << 20


def find_problems(config: RunConfig, run: RunDirectory, *, is_prepared: bool = False) -> list[Problem]:
    """Find every problem of the config, the machine, the sources, the hub and the reward. The rows are checked too if
    one of these problems stops the run anyway; otherwise the preparation comes next and reports the problems of the
    rows.

    Args:
        config: The config, with paths that can be read from here.
        run: The run.
        is_prepared: Whether the rows are already prepared, so that their sources may be gone.
    """
    gpu = find_gpu(config.cluster.device)
    if is_prepared:
        problems = planned_problems(config, run, {}, [], gpu=gpu)
    else:
        answers = ask_hub(config, seconds=SECONDS_OF_RUN)
        problems = planned_problems(config, run, glance_at(config), answers, gpu=gpu)
        problems += trial_problems(config)
    if not _has_fatal(problems, _OF_THE_REWARD):
        problems += reward_problems(config)
    problems += algorithm_problems(config.algorithm)
    if not is_prepared and _has_fatal(problems) and not _has_fatal(problems, _OF_THE_ROWS):
        problems += data_problems(config)
    return problems


def planned_problems(
    config: RunConfig,
    run: RunDirectory,
    glances: Mapping[str, Glance],
    answers: Sequence[HubAnswer],
    *,
    gpu: Gpu | None,
) -> list[Problem]:
    """Problems that are found without calling the reward and without reading every row. A source with a wrong path is
    reported once.

    Args:
        config: The config, with paths that can be read from here.
        run: The run.
        glances: [key of a data source] -> glance; empty where the rows are already prepared.
        answers: The answers of the hub.
        gpu: The GPU of each worker; None for workers on the CPU.
    """
    problems = [*device_problems(config.cluster, gpu), *static_problems(config, run, gpu=gpu)]
    if not glances:
        return [problem for problem in problems if not problem.where.startswith(_SOURCES)]
    named = [problem.where for problem in problems]
    unread = {key for key in glances if any(where.startswith(key) for where in named)}
    problems += [problem for problem in source_problems(config, glances) if problem.where not in unread]
    return [*problems, *hub_problems(answers)]


_OF_THE_REWARD = (
    "reward",
    "cold_start.target_template",
    "evaluation.accuracy_key",
    "algorithm.online_filtering.filter_key",
)
"""Keys whose problems make it impossible to try the reward."""

_FIX = "correct the function, or its arguments in kwargs"

_OF_THE_ROWS = (
    "data.train",
    "data.validation",
    "cold_start.",
    "data.prompt_template",
    "data.override_chat",
    "model.source",
)
"""Keys whose problems make it impossible to prepare rows."""


def _has_fatal(problems: Sequence[Problem], keys: tuple[str, ...] = ("",)) -> bool:
    return any(problem.fatal and problem.where.startswith(keys) for problem in problems)


def static_problems(config: RunConfig, run: RunDirectory, *, gpu: Gpu | None) -> list[Problem]:
    """Problems that the config, small files and the machine show, found in milliseconds."""
    problems = check_config(config, gpu=gpu)
    named = {problem.where for problem in problems}
    problems += [problem for problem in text_problems(config) if problem.where not in named]
    is_here = gpu is None or not gpu.is_elsewhere
    if is_here and not _has_fatal(problems, ("model.source", "model.lora")):
        problems += disk_problems(config, run)
    return [*problems, *storage_problems(config)]


def device_problems(cluster: ClusterConfig, gpu: Gpu | None) -> Iterator[Problem]:
    """A GPU of this machine that workers here are to compute on and cannot. Machines that are joined are asked
    themselves (rl_core.workers.node_check)."""
    problem = unusable_gpu(gpu) if cluster.address == "local" else None
    if problem is not None:
        yield problem


def storage_problems(config: RunConfig) -> list[Problem]:
    """Problems with the address that the run is copied to: no installed package knows its scheme. The storage itself is
    not contacted, since it may be unreachable for a while."""
    settings = storage_settings(config)
    try:
        if settings is not None:
            run_store(settings, config.experiment)
    except ValueError as error:
        fix = f"correct the address, or {VARIABLE} in the environment, which wins over it"
        return [Problem(where="storage.address", what=f"{error}", fix=fix)]
    return []


def disk_problems(config: RunConfig, run: RunDirectory) -> list[Problem]:
    """Problems with the disk: there is no space for the models and checkpoints that are still to be written."""
    sizes = model_sizes(config.model.source)
    if sizes is None:
        return []
    folders = (run.checkpoints, run.initial_model, run.base_model, run.merged_model)
    written = sum(path.stat().st_size for folder in folders if folder.is_dir() for path in files_below(folder))
    problem = check_free_disk(run.root, disk_forecast(config, sizes).total_bytes - written)
    return [] if problem is None else [problem]


def reward_problems(config: RunConfig) -> list[Problem]:
    """Problems that show when the reward is tried on the true answers of the first rows of each source."""
    prompts = [*_asked(config.data.train), *_asked(config.data.validation)]
    # Imported here: plans do not call the reward.
    from rl_core.rewards.preflight import try_on_ground_truth

    template = config.cold_start.target_template if config.cold_start else None
    filtering = config.algorithm.online_filtering
    trial = try_on_ground_truth(
        config.reward,
        prompts,
        target_template=template,
        accuracy_key=config.evaluation.accuracy_key,
        filter_key=filtering.component if filtering else None,
    )
    fix = "correct the reward or the answers' column"
    return [
        *_filter_problems(filtering, trial.scores),
        *(Problem(where="reward", what=what, fix=fix) for what in trial.problems),
        *(Problem(where="reward", what=what, fix=fix, fatal=False) for what in trial.warnings),
    ]


def trial_problems(config: RunConfig) -> list[Problem]:
    """Problems that the first rows of the data sources show."""
    return [problem.below(key) for key, source in config.sources() for problem in source.trial_problems()]


def _filter_problems(filtering: GroupFilterSection | None, scores: Sequence[Score]) -> Iterator[Problem]:
    """Problems of a user's filter, which is tried on one group of the given scores with equal components."""
    components = [score.components for score in scores if score.error is None]
    if not (isinstance(filtering, CustomFilter) and filtering.is_well_written and components):
        return
    from rl_core.algorithms.trial import filter_problem

    group = group_scores([found for found in components if found.keys() == components[0].keys()])
    what = filter_problem(filtering, group)
    if what is not None:
        yield Problem(where="algorithm.online_filtering", what=what, fix=_FIX)


def algorithm_problems(algorithm: AlgorithmConfig) -> Iterator[Problem]:
    """Problems of a user's loss and estimator, which are imported and tried on made-up inputs."""
    tried = {key: custom for key, custom in algorithm.custom_functions() if custom.is_well_written}
    if not tried:
        return
    # Imported here: it loads torch, which before the training only functions of the user need.
    from rl_core.algorithms.trial import advantage_problem, loss_problem

    for key, custom in tried.items():
        what = None
        if isinstance(custom, CustomLoss):
            what = loss_problem(custom)
        elif isinstance(custom, CustomAdvantage):
            what = advantage_problem(custom)
        if what is not None:
            yield Problem(where=key, what=what, fix=_FIX)


def _asked(source: DataSource) -> list[Prompt]:
    """Prompts of the first readable rows for the reward, without tokens and images. Empty for a source that cannot be
    opened, which is reported elsewhere."""
    try:
        rows = [row for row in source.first_rows(_ROWS_TRIED).open() if isinstance(row, Row)]
    except ValueError:
        return []
    nothing = np.zeros(0, dtype=np.int32)
    return [
        Prompt(
            uid=f"{row.index}",
            data_source=row.data_source,
            question=row.question,
            text=row.question,
            answer=row.answer,
            token_ids=nothing,
            engine_token_ids=nothing,
            extra=row.extra,
        )
        for row in rows
    ]


def data_problems(config: RunConfig) -> list[Problem]:
    """Problems that a preparation in a temporary folder shows."""
    # Imported here: it loads transformers.
    from tasks.preparation import prepare_run

    if isinstance(config.model.source, TinyModel):
        # The tokenizer is trained on the rows, so unusable rows change it, and prompt lengths would mean nothing.
        data = config.data.model_copy(update={"max_prompt_length": _NO_LIMIT})
        config = config.model_copy(update={"data": data})
    try:
        with tempfile.TemporaryDirectory() as scratch:
            prepare_run(config, RunDirectory(Path(scratch)), progress=SilentProgress())
    except (ValueError, OSError) as error:
        what = str(error).replace("\n", "\n    ")
        return [Problem(where="data", what=what, fix="correct the rows, or the columns and limits in `data`")]
    return []


def prepared_problems(config: RunConfig, manifest: DataManifest) -> list[Problem]:
    """Problems of the config with the prepared rows, which may have been prepared for a run that uses them in another
    way (tasks.cache.stages)."""
    rows = manifest.splits["train"]
    names = {name for split in manifest.splits.values() for name in split.data_sources}
    return [
        *_weighting_problems(config, rows),
        *judged_name_problems(config, names),
        *row_problems(config, rows.rows),
    ]


def prepared_column_problems(config: RunConfig, folder: Path) -> list[Problem]:
    """Problems with columns that the evaluation needs and that no prepared held-out row in `folder` has."""
    if not config.evaluation.categories:
        return []
    # Imported here: plans open no prepared rows.
    from rl_core.data.prepared import PreparedDataset

    return list(category_problems(config, PreparedDataset.open(folder, "validation").extra_columns()))


def _weighting_problems(config: RunConfig, rows: SplitSummary) -> Iterator[Problem]:
    weights, batch_size = config.data.source_weights, prompts_a_draw(config)
    if weights is None or rows.rows < batch_size:
        return  # row_problems reports that there are too few rows
    try:
        check_weighted_batches(weights, rows.data_sources, batch_size=batch_size)
    except ValueError as error:
        fix = f"the rows are of {', '.join(rows.data_sources)}: correct the weights, or set it to null"
        yield Problem(where="data.source_weights", what=str(error), fix=fix)
