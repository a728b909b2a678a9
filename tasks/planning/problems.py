"""Problems of a run that are found without calling user functions and without reading every row. Imports neither
Prefect nor torch."""

import difflib
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rl_core.config.reward import COMPONENTS
from rl_core.config.run import RunConfig
from rl_core.config.tools import PYTHON
from rl_core.data.manifest import DataManifest, SplitSummary
from rl_core.data.ordering import check_weighted_batches
from rl_core.data.prompts import PromptTemplate
from rl_core.files import files_below, read_utf8
from rl_core.planning.batches import BatchPlan, batch_plan, divisibility_problems, prompts_per_draw, row_problems
from rl_core.planning.gpu import Gpu
from rl_core.planning.hub import HubAnswer, hub_problems
from rl_core.planning.machine_rules import unusable_gpu
from rl_core.planning.memory_rows import GIB
from rl_core.planning.model_sizes import model_sizes
from rl_core.planning.rules import check_config, quick_problems
from rl_core.planning.token_rules import token_problems
from rl_core.planning.training_state import disk_bytes
from rl_core.problem import PlanError, Problem
from rl_core.run_directory import RunDirectory
from rl_core.sources.mixture import joint_glance
from rl_core.sources.source import DataSource, Glance
from rl_core.templates import check_chat_template, target_template
from rl_core.tools.builtin.python import confinement_problem
from rl_core.user_code.function import find_function, is_user_function
from tasks.cache.manifests import read_manifest
from tasks.cache.reuse import other_runs
from tasks.storage.run_storage import VARIABLE, run_store, storage_settings

_SOURCES = ("data.train", "data.validation", "cold_start.source")
"""Beginnings of the keys of the data sources."""


def planned_problems(
    config: RunConfig,
    run: RunDirectory,
    glances: Mapping[str, Glance],
    answers: Sequence[HubAnswer],
    *,
    gpu: Gpu | None,
) -> list[Problem]:
    """Problems that are found without calling the reward and without reading every row, of a config with paths that can
    be read from here. `glances` (key of a data source -> glance) is empty where the rows are already prepared. A source
    with a wrong path is reported once."""
    problems = static_problems(config, run, gpu=gpu)
    # Machines that are joined are asked themselves (rl_core.workers.node_check).
    if config.cluster.address == "local" and (unusable := unusable_gpu(gpu)) is not None:
        problems.insert(0, unusable)
    return [*_with_sources(problems, config, glances), *hub_problems(answers)]


def first_problems(config: RunConfig, glances: Mapping[str, Glance]) -> list[Problem]:
    """Those of the planned problems that the config and the files that it names show at once: without the machine, the
    sizes of the model, and the hub."""
    return _with_sources(_with_texts(quick_problems(config), config), config, glances)


def _with_sources(problems: list[Problem], config: RunConfig, glances: Mapping[str, Glance]) -> list[Problem]:
    if not glances:
        return [problem for problem in problems if not problem.where.startswith(_SOURCES)]
    named = [problem.where for problem in problems]
    unread = {key for key in glances if any(where.startswith(key) for where in named)}
    return [*problems, *(problem for problem in source_problems(config, glances) if problem.where not in unread)]


def _with_texts(problems: list[Problem], config: RunConfig) -> list[Problem]:
    named = {problem.where for problem in problems}
    return [*problems, *(problem for problem in text_problems(config) if problem.where not in named)]


def has_fatal(problems: Sequence[Problem], keys: tuple[str, ...] = ("",)) -> bool:
    """Whether any of these problems stops the run and is of a key that begins so."""
    return any(problem.fatal and problem.where.startswith(keys) for problem in problems)


def static_problems(config: RunConfig, run: RunDirectory, *, gpu: Gpu | None) -> list[Problem]:
    """Problems that the config, small files and the machine show, found in milliseconds."""
    problems = _with_texts(check_config(config, gpu=gpu), config)
    is_here = gpu is None or not gpu.is_elsewhere
    if is_here and not has_fatal(problems, ("model.source",)):
        problems += disk_problems(config, run)
    return [*problems, *_storage_problems(config)]


def _storage_problems(config: RunConfig) -> list[Problem]:
    """Problems with the scheme of the copy's address. The storage is not contacted: it may be away for a while."""
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
    needed = disk_bytes(config, sizes) - written
    existing = next(folder for folder in (run.root, *run.root.absolute().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if free >= needed:
        return []
    return [
        Problem(
            where=f"disk of {run.root}",
            what=f"{needed / GIB:.2f} GiB are needed and {free / GIB:.2f} GiB are free",
            fix="free some space, put the run elsewhere, lower trainer.save_limit, or set trainer.save_model_only",
        )
    ]


def text_problems(config: RunConfig) -> list[Problem]:
    """Problems of templates and other texts, reward functions and protocol names. No code of the user is run."""
    templates = list(_template_problems(config))
    unread = {problem.where for problem in templates}
    tokens = [problem for problem in token_problems(config) if problem.where not in unread]
    others = (_function_problems, _tool_problems, _protocol_problems)
    return [*templates, *tokens, *(problem for problems in others for problem in problems(config))]


def _template_problems(config: RunConfig) -> Iterator[Problem]:
    data, cold_start = config.data, config.cold_start
    if data.prompt_template is not None:
        try:
            PromptTemplate.load(data.prompt_template)
        except ValueError as error:
            what = str(error).removeprefix(f"data.prompt_template {data.prompt_template}: ")
            yield Problem(where="data.prompt_template", what=what, fix=f"correct {data.prompt_template}")
    if data.override_chat_template is not None:
        try:
            check_chat_template(read_utf8(Path(data.override_chat_template)))
        except (ValueError, OSError) as error:
            path = data.override_chat_template
            yield Problem(where="data.override_chat_template", what=f"the template {error}", fix=f"correct {path}")
    if cold_start is not None:
        key = "cold_start.target_template"
        try:
            target_template(cold_start.target_template)
        except ValueError as error:
            what = str(error).removeprefix(f"{key} ")
            yield Problem(where=key, what=f"it {what}", fix="correct it")


def _function_problems(config: RunConfig) -> Iterator[Problem]:
    # Imported here: it finds the modules of the built-in rewards.
    from rl_core.rewards.registry import call_problems

    for key, term in config.reward.keyed_terms():
        if term.function not in COMPONENTS and not is_user_function(term.function):
            continue  # its section checks the names of built-in rewards
        try:
            yield from (problem.below(key.removesuffix(".function")) for problem in call_problems(term))
        except ValueError as error:
            what = str(error).removeprefix(f"reward.function {term.function!r}").removeprefix(":").strip()
            yield Problem(where=key, what=what, fix="correct the path, the function's name or the file")


def _tool_problems(config: RunConfig) -> Iterator[Problem]:
    if config.tools is None:
        return
    if PYTHON in config.tools.use and config.tools.sandbox != "none" and (why := confinement_problem()) is not None:
        fix = "run on such a machine, or write tools.sandbox: none, which lets a model's programs do all that you may"
        yield Problem(where="tools.use", what=why, fix=fix)
    for written in config.tools.user_code:
        try:
            find_function(written)
        except ValueError as error:
            yield Problem(where="tools", what=str(error), fix="correct the path, the name or the file")


def _protocol_problems(config: RunConfig) -> Iterator[Problem]:
    if config.published is None:
        return
    # Imported here: few configs publish a number, and the protocols import the modules of the evaluation.
    from rl_core.evaluation.protocols.registry import protocol_named

    try:
        protocol_named(config.published.protocol)
    except ValueError as error:
        yield Problem(where="published.protocol", what=str(error), fix="name a protocol with its version")


def source_problems(config: RunConfig, glances: Mapping[str, Glance]) -> list[Problem]:
    """Problems with sources that cannot be read, and with names of sources and columns that do not exist."""
    problems = [
        Problem(where=key, what=glance.problem, fix="correct the path, the columns or the file")
        for key, glance in glances.items()
        if glance.problem is not None
    ]
    problems += [
        Problem(
            where=f"{key}.columns.image_key",
            what=f"not used: {', '.join(map(repr, sorted(glance.unused_images)))}, by the name a column with images",
            fix="name the column here if the questions have images",
            fatal=False,
            on_pages=True,
        )
        for key, glance in glances.items()
        if glance.unused_images
    ]
    train = split_glance(config.data.train, "data.train", glances)
    validation = split_glance(config.data.validation, "data.validation", glances)
    if train.names is not None:
        problems += _weight_problems(config, train.names)
    if train.names is not None and validation.names is not None:
        problems += _judged_name_problems(config, train.names | validation.names)
    if validation.columns is not None:
        problems += _category_problems(config, validation.columns)
    for key, glance in glances.items():
        if glance.columns is not None:
            problems += _shown_column_problems(config, key, glance.columns)
    return [*problems, *_reward_column_problems(config, glances)]


def _reward_column_problems(config: RunConfig, glances: Mapping[str, Glance]) -> Iterator[Problem]:
    """Problems with columns that a function in TRL's form takes and that no row which it scores has."""
    from rl_core.rewards.registry import wanted_columns  # imported here, as above

    for key, term in config.reward.keyed_terms():
        try:
            wanted = wanted_columns(term) if is_user_function(term.function) else []
        except ValueError:  # text_problems reports it
            continue
        for place, glance in glances.items():
            if not wanted or glance.columns is None or place.startswith("cold_start"):
                continue
            columns = {*glance.columns, *config.answer_names}
            missing = [name for name in wanted if name not in columns]
            if missing and _may_score(config, key, glance):
                yield Problem(
                    where=key,
                    what=f"the function takes {', '.join(missing)}, and the rows of {place} have no such column; "
                    f"{_there(missing[0], columns)}",
                    fix="rename the parameter or the column, or give it a value in kwargs",
                )


def _may_score(config: RunConfig, key: str, glance: Glance) -> bool:
    """Whether the function with this key may score rows of a source."""
    if glance.names is None:
        return True
    named = config.reward.by_source.keys()
    source = next((name for name in named if key.startswith(f"reward.by_source.{name}.")), None)
    return bool(glance.names - named) if source is None else source in glance.names


def _shown_column_problems(config: RunConfig, key: str, columns: Collection[str]) -> Iterator[Problem]:
    """Problems with columns that the prompt template shows and that the source with this key lacks."""
    try:
        shown = PromptTemplate.load(config.data.prompt_template).columns
    except ValueError:  # text_problems reports it
        return
    for name in sorted(shown - {"row", *columns}):
        yield Problem(
            where="data.prompt_template",
            what=f"it shows {name!r}, and the rows of {key} have no such column; {_there(name, columns)}",
            fix=f"correct {config.data.prompt_template}, or the columns ({key}.columns.options_key gives `options`)",
        )


def _weight_problems(config: RunConfig, names: Collection[str]) -> Iterator[Problem]:
    weights = config.data.source_weights
    if weights is not None and set(weights) != set(names):
        yield Problem(
            where="data.source_weights",
            what=f"it names {', '.join(weights) or 'nothing'}, and the training rows are of {', '.join(sorted(names))}",
            fix="give each data source a weight, or set it to null",
        )


def _judged_name_problems(config: RunConfig, names: Collection[str]) -> Iterator[Problem]:
    """Problems with rewards for data sources that no row has: fatal where a data source has a similar name, which
    suggests a typing error; else a warning, since the table may serve other data too."""
    for name in sorted(set(config.reward.by_source) - set(names)):
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        yield Problem(
            where=f"reward.by_source.{name}",
            what=f"no row is of a data source of that name; they are of {', '.join(sorted(names))}{meant}",
            fix="correct the name, or leave it out",
            fatal=bool(close),
        )


def _category_problems(config: RunConfig, columns: Collection[str]) -> Iterator[Problem]:
    for name in config.evaluation.categories:
        if name not in columns:
            yield Problem(
                where="evaluation.categories",
                what=f"{name!r} is no further column of the held-out rows; {_there(name, columns)}",
                fix="name columns that they have",
            )


def _there(name: str, columns: Collection[str]) -> str:
    close = difflib.get_close_matches(name, columns, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"there is {', '.join(sorted(columns)) or 'none'}"


def prepared_problems(config: RunConfig, manifest: DataManifest) -> list[Problem]:
    """Problems with rows that another run, which uses them in another way, may have prepared."""
    rows = manifest.splits["train"]
    names = {name for split in manifest.splits.values() for name in split.data_sources}
    return [
        *_weighting_problems(config, rows),
        *_judged_name_problems(config, names),
        *row_problems(config, rows.rows),
    ]


def prepared_column_problems(config: RunConfig, folder: Path) -> list[Problem]:
    """Problems with columns that the evaluation needs and that no prepared held-out row in `folder` has."""
    if not config.evaluation.categories:
        return []
    # Imported here: plans open no prepared rows.
    from rl_core.data.prepared import PreparedDataset

    return list(_category_problems(config, PreparedDataset.open(folder, "validation").extra_columns()))


def _weighting_problems(config: RunConfig, rows: SplitSummary) -> Iterator[Problem]:
    weights, batch_size = config.data.source_weights, prompts_per_draw(config)
    if weights is None or rows.rows < batch_size:
        return  # row_problems reports that there are too few rows
    try:
        check_weighted_batches(weights, rows.data_sources, batch_size=batch_size)
    except ValueError as error:
        fix = f"the rows are of {', '.join(rows.data_sources)}: correct the weights, or set it to null"
        yield Problem(where="data.source_weights", what=str(error), fix=fix)


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownRows:
    """A number of training rows, an estimate where it is not exact. `origin` says where the number comes from, if
    training may have fewer rows; it is empty if it will have exactly this number."""

    count: int
    origin: str = ""
    is_exact: bool = True

    def plan(self, config: RunConfig) -> BatchPlan | None:
        """The batch arithmetic; None when the batch sizes do not fit, which `problems` reports."""
        try:
            return batch_plan(config, self.count)
        except PlanError:
            return None

    def problems(self, config: RunConfig) -> list[Problem]:
        """Problems with this number of rows: fatal where a batch is certainly larger, else a warning."""
        if not self.origin or divisibility_problems(config):
            return []
        found = row_problems(config, self.count)
        is_certain = self.is_exact and self.count < config.data.rollout_batch_size
        return found if is_certain else [replace(problem, fatal=False) for problem in found]


def known_rows(
    config: RunConfig, run: RunDirectory, digests: Mapping[str, str], glance: Glance | None = None
) -> KnownRows | None:
    """The number of training rows: from a finished preparation of this run or another one; else as the source knows it,
    as a glance at it shows it, or as it was published. None when it is not known."""
    prepared = _prepared_rows(run, digests["prepare"])
    if prepared is not None:
        return KnownRows(count=prepared)
    if config.data.train.known_rows is not None:
        return KnownRows(count=config.data.train.known_rows)
    if glance is not None and glance.rows is not None:
        return KnownRows(count=glance.rows, origin="as many as are there; unusable and overlong ones are left out")
    if config.published is not None:
        return KnownRows(count=config.published.train_rows, is_exact=False, origin="as many as the published run had")
    return None


def _prepared_rows(run: RunDirectory, digest: str) -> int | None:
    for place in [*([run] if run.root.is_dir() else []), *other_runs(run)]:
        manifest = read_manifest(place, "prepare")
        if manifest is not None and manifest.digest == digest:
            return int(manifest.result["splits"]["train"]["rows"])
    return None


def glance_at(config: RunConfig) -> dict[str, Glance]:
    """[key] -> glance of every source; the sources of a mixture have keys of their own."""
    glances = {}
    for key, source in config.sources():
        try:
            glances[key] = source.glance()
        except (ValueError, OSError) as error:
            glances[key] = Glance(problem=str(error))
    return glances


def split_glance(split: DataSource, key: str, glances: Mapping[str, Glance]) -> Glance:
    """The glance of a split. Where the split cannot be read, nothing is known of it."""
    if not split.parts:
        return glances[key]
    parts = {name: glances[f"{key}.sources.{name}"] for name in split.parts}
    return joint_glance(parts, names_rows=split.names_its_rows)
