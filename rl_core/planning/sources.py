"""Rules about what the configuration points at: files, folders, the hub."""

import os
from collections.abc import Iterator
from pathlib import Path

from huggingface_hub import constants

from rl_core.config.data import CountingSource, HubSource, LocalSource, MixtureSource, SingleSource, Source
from rl_core.config.model import PretrainedModel
from rl_core.config.run import RunConfig
from rl_core.files import check_regular, files_named
from rl_core.planning.problem import Problem
from rl_core.planning.scene_rules import scene_problems


def configured_sources(config: RunConfig) -> Iterator[tuple[str, SingleSource]]:
    """Every data source with its key, those of a mixture one by one."""
    yield from _parts("data.train", config.data.train)
    yield from _parts("data.validation", config.data.validation)
    if config.cold_start is not None and config.cold_start.source is not None:
        yield from _parts("cold_start.source", config.cold_start.source)


def _parts(key: str, source: Source) -> Iterator[tuple[str, SingleSource]]:
    if isinstance(source, MixtureSource):
        yield from ((f"{key}.sources.{name}", part) for name, part in source.sources.items())
    else:
        yield key, source


def file_problems(config: RunConfig) -> list[Problem]:
    """Every file and folder that the configuration names and that is not there, or is something else."""
    return [problem for named in _named_paths(config) for problem in _path_problems(*named)]


def _path_problems(key: str, path: Path, kind: str) -> Iterator[Problem]:
    is_folder = os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises on a name that is too long
    found = [path] if is_folder else files_named(path)
    if not found or (kind == "folder" and not is_folder):
        yield Problem(where=key, what=f"there is no {kind} {path}", fix=f"write {path.absolute()}, or correct the path")
    elif not (is_folder and "folder" in kind):
        for file in found:
            try:
                check_regular(file)
            except ValueError as error:
                yield Problem(where=key, what=str(error), fix="name a file on a disk")


def _named_paths(config: RunConfig) -> Iterator[tuple[str, Path, str]]:
    if config.data.prompt_template is not None:
        yield "data.prompt_template", Path(config.data.prompt_template), "file"
    if config.data.override_chat_template is not None:
        yield "data.override_chat_template", Path(config.data.override_chat_template), "file"
    for key, term in config.reward.keyed_terms():
        file, separator, _ = term.function.rpartition(":")
        if separator:
            yield key, Path(file), "file"
    for key, source in configured_sources(config):
        if isinstance(source, LocalSource):
            yield f"{key}.path", Path(source.path), "file or folder"
        if isinstance(source, LocalSource | HubSource) and source.media_dir is not None:
            yield f"{key}.media_dir", Path(source.media_dir), "folder"


def counting_problems(config: RunConfig) -> list[Problem]:
    """Scenes that cannot be drawn as they are described."""
    return [
        problem
        for key, source in configured_sources(config)
        if isinstance(source, CountingSource)
        for problem in scene_problems(key, source)
    ]


def overlap_problems(config: RunConfig) -> list[Problem]:
    """Held-out rows that would be seen in training or in the cold start."""
    sources = list(configured_sources(config))
    return [
        Problem(
            where=held_out_key,
            what=f"its images would also be in {key}: {reason}",
            fix="give it other rows, so that the accuracy measures what was not seen",
        )
        for held_out_key, held_out in sources
        if held_out_key.startswith("data.validation")
        for key, source in sources
        if not key.startswith("data.validation") and (reason := _shared(source, held_out)) is not None
    ]


def _shared(source: SingleSource, held_out: SingleSource) -> str | None:
    if isinstance(source, CountingSource) and isinstance(held_out, CountingSource):
        return f"both have scene_seed {source.scene_seed}" if source.scene_seed == held_out.scene_seed else None
    if isinstance(source, LocalSource) and isinstance(held_out, LocalSource):
        same = Path(source.path).absolute() == Path(held_out.path).absolute()
        return f"both read {source.path}" if same else None
    if isinstance(source, HubSource) and isinstance(held_out, HubSource):
        same = (source.name, source.revision) == (held_out.name, held_out.revision)
        return f"both read {source.name}" if same else None
    return None


def weight_problems(config: RunConfig) -> list[Problem]:
    """Weights that do not fit the sources of a mixture; where a column names them, the preparation looks."""
    weights, train = config.data.source_weights, config.data.train
    if weights is None or not isinstance(train, MixtureSource) or any(map(_names_rows, train.sources.values())):
        return []
    if set(weights) == set(train.sources):
        return []
    return [
        Problem(
            where="data.source_weights",
            what=f"it names {', '.join(weights) or 'nothing'}, and data.train has {', '.join(train.sources)}",
            fix="give each source of the mixture a weight, or none of them",
        )
    ]


def _names_rows(source: SingleSource) -> bool:
    return not isinstance(source, CountingSource) and source.columns.data_source_key is not None


def offline_problems(config: RunConfig) -> list[Problem]:
    """What must come from the hub while HF_HUB_OFFLINE forbids to ask it."""
    if not constants.HF_HUB_OFFLINE:
        return []
    problems = [
        Problem(
            where=key,
            what=f"{name} must come from the hub, HF_HUB_OFFLINE is set, and {cache} does not hold it",
            fix="unset HF_HUB_OFFLINE, or download it on a machine that reaches the hub and copy the cache",
        )
        for key, name, cache in _hub_names(config)
        if not cache.is_dir()
    ]
    if config.merge.push is not None:
        problems.append(
            Problem(
                where="merge.push",
                what=f"the merged model cannot be uploaded to {config.merge.push} while HF_HUB_OFFLINE is set",
                fix="unset HF_HUB_OFFLINE, or set merge.push to null and run `sightline merge --push` later",
            )
        )
    return problems


def _hub_names(config: RunConfig) -> Iterator[tuple[str, str, Path]]:
    """Key, name and cache folder of everything that is fetched from the hub."""
    cache = Path(constants.HF_HUB_CACHE)
    model = config.model.source
    if isinstance(model, PretrainedModel) and not Path(model.path).is_dir():
        yield "model.source.path", model.path, cache / f"models--{model.path.replace('/', '--')}"
    for key, source in configured_sources(config):
        if isinstance(source, HubSource):
            name = source.name.partition("@")[0]
            if not Path(name).is_dir():
                yield f"{key}.name", name, cache / f"datasets--{name.replace('/', '--')}"


def model_path_problems(config: RunConfig) -> list[Problem]:
    """A model path that is neither a folder with a config.json nor a name on the hub."""
    source = config.model.source
    if not isinstance(source, PretrainedModel):
        return []
    folder = Path(source.path)
    if folder.is_dir():
        if (folder / "config.json").is_file():
            return []
        what, fix = f"{folder} has no config.json, so it is no checkpoint", "name the folder that holds config.json"
    elif source.path.count("/") == 1 and not source.path.startswith((".", os.sep, "~")):
        return []
    else:
        what, fix = f"there is no folder {folder}", "correct the path, or name a checkpoint of the hub as owner/name"
    return [Problem(where="model.source.path", what=what, fix=fix)]
