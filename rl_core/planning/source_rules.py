"""Rules about files, folders and repositories of the hub that the configuration names."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from huggingface_hub import constants

from rl_core.config.model import PretrainedModel
from rl_core.config.run import RunConfig
from rl_core.files import NOTHING_THERE, files_named, why_no_file
from rl_core.problem import Problem
from rl_core.sources.source import DataSource
from rl_core.user_code.function import file_named
from rl_core.wording import shortened

_COMMIT = re.compile(r"[0-9a-f]{40}")


def configured_sources(config: RunConfig) -> Iterator[tuple[str, DataSource]]:
    """Every data source with its key; a mixture yields each of its sources."""
    yield from _parts("data.train", config.data.train)
    yield from _parts("data.validation", config.data.validation)
    if config.cold_start is not None and config.cold_start.source is not None:
        yield from _parts("cold_start.source", config.cold_start.source)


def _parts(key: str, source: DataSource) -> Iterator[tuple[str, DataSource]]:
    if source.parts:
        yield from ((f"{key}.sources.{name}", part) for name, part in source.parts.items())
    else:
        yield key, source


def file_problems(config: RunConfig) -> list[Problem]:
    """Every file and folder that the configuration names and that does not exist or is of another kind."""
    return [problem for named in _named_paths(config) for problem in _path_problems(*named)]


def _path_problems(key: str, path: Path, kind: str) -> Iterator[Problem]:
    is_folder = _is_folder(str(path))
    if is_folder and "folder" in kind:
        return
    found = [path] if is_folder else files_named(path)
    if kind != "folder" and found:
        wrong = [(file, why) for file in found if (why := why_no_file(file)) is not None]
        yield from (
            Problem(where=key, what=f"{shortened(str(file))} cannot be read: {why}", fix="name a file on a disk")
            for file, why in wrong
        )
        return
    why = why_no_file(path) or "it is a file"
    reason = "" if why == NOTHING_THERE else f": {why}"
    yield Problem(
        where=key,
        what=f"there is no {kind} {shortened(str(path))}{reason}",
        fix=f"write {shortened(str(path.absolute()))}, or correct the path",
    )


def _named_paths(config: RunConfig) -> Iterator[tuple[str, Path, str]]:
    if config.data.prompt_template is not None:
        yield "data.prompt_template", Path(config.data.prompt_template), "file"
    if config.data.override_chat_template is not None:
        yield "data.override_chat_template", Path(config.data.override_chat_template), "file"
    for key, term in config.reward.keyed_terms():
        file = file_named(term.function)
        if file is not None:
            yield key, Path(file), "file"
    for key, source in configured_sources(config):
        for field, path, kind in source.paths():
            yield f"{key}.{field}", path, kind


def overlap_problems(config: RunConfig) -> list[Problem]:
    """Held-out rows that training or the cold start would see too."""
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
        if not key.startswith("data.validation") and (reason := source.shared_with(held_out)) is not None
    ]


def weight_problems(config: RunConfig) -> list[Problem]:
    """Weights that do not fit the sources of a mixture. Where a column names the sources, the preparation checks
    them."""
    weights, train = config.data.source_weights, config.data.train
    if weights is None or not train.parts or train.names_its_rows:
        return []
    if set(weights) == set(train.parts):
        return []
    return [
        Problem(
            where="data.source_weights",
            what=f"it names {', '.join(weights) or 'nothing'}, and data.train has {', '.join(train.parts)}",
            fix="give each source of the mixture a weight, or none of them",
        )
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class HubName:
    """Something that is fetched from the hub.

    Attributes:
        key: Where the config names it.
        kind: Whether it is a model or a dataset.
        repository: `owner/name`.
        revision: Branch, tag or commit; None is the main branch.
    """

    key: str
    kind: Literal["model", "dataset"]
    repository: str
    revision: str | None

    @property
    def told(self) -> str:
        """Its name as messages show it."""
        return shortened(self.repository if self.revision is None else f"{self.repository} at {self.revision}")

    @property
    def cache(self) -> Path:
        """Its folder in the cache of this machine."""
        return Path(constants.HF_HUB_CACHE) / f"{self.kind}s--{self.repository.replace('/', '--')}"

    @property
    def is_cached(self) -> bool:
        """Whether any of it was fetched before."""
        return os.path.isdir(self.cache)  # noqa: PTH112 - Path.is_dir raises on a name that is too long

    @property
    def is_settled(self) -> bool:
        """Whether the hub need not be asked any more. The branch of a cached dataset may have moved, a commit
        cannot."""
        is_commit = self.revision is not None and _COMMIT.fullmatch(self.revision) is not None
        return self.is_cached and (self.kind == "model" or is_commit)


def hub_names(config: RunConfig) -> list[HubName]:
    """Everything that is fetched from the hub: names for which there is no folder on this machine."""
    names = []
    model = config.model.source
    if isinstance(model, PretrainedModel) and not _is_folder(model.path) and _is_hub_path(model.path):
        names.append(HubName(key="model.source.path", kind="model", repository=model.path, revision=model.revision))
    for key, source in configured_sources(config):
        repository = source.repository()
        if repository is not None and not _is_folder(repository.name):
            names.append(
                HubName(
                    key=f"{key}.{repository.key}",
                    kind="dataset",
                    repository=repository.name,
                    revision=repository.revision,
                )
            )
    return names


def offline_problems(config: RunConfig) -> list[Problem]:
    """Names that must be fetched from the hub, or uploaded to it, although HF_HUB_OFFLINE forbids it."""
    if not constants.HF_HUB_OFFLINE:
        return []
    problems = [
        Problem(
            where=name.key,
            what=f"{name.told} must come from the hub, but HF_HUB_OFFLINE is set and {name.cache} does not exist",
            fix="unset HF_HUB_OFFLINE, or download it on a machine that reaches the hub and copy the cache",
        )
        for name in hub_names(config)
        if not name.is_cached
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


def model_path_problems(config: RunConfig) -> list[Problem]:
    """A model path that is neither a folder with a config.json nor a name on the hub."""
    source = config.model.source
    if not isinstance(source, PretrainedModel):
        return []
    folder = Path(source.path)
    if _is_folder(source.path):
        if (folder / "config.json").is_file():
            return []
        what, fix = f"{folder} has no config.json, so it is no checkpoint", "name the folder that holds config.json"
    elif _is_hub_path(source.path):
        return []
    else:
        what, fix = (
            f"there is no folder {shortened(source.path)}",
            "correct the path, or name a checkpoint of the hub as owner/name",
        )
    return [Problem(where="model.source.path", what=what, fix=fix)]


def _is_hub_path(path: str) -> bool:
    return path.count("/") == 1 and not path.startswith((".", os.sep, "~"))


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises on a name that is too long
