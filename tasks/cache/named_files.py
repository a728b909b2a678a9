"""Reads the files that a config names: templates, files of functions, data sources, weights of a checkpoint."""

import os
from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeVar

from rl_core.config.model import ModelSource, PretrainedModel
from rl_core.config.reward import RewardChoice, RewardConfig
from rl_core.config.run import RunConfig
from rl_core.digests import hash_file
from rl_core.files import files_named, read_utf8
from rl_core.problem import Problem
from rl_core.sources.source import DataSource
from rl_core.user_code.function import file_named, find_function
from rl_core.user_code.text import files_of

Fingerprint = Callable[[DataSource], str]
"""Maps a data source to the hash of everything that its rows depend on."""

Choice = TypeVar("Choice", bound=RewardChoice)

WeightFiles = list[list[str | int]]
"""Name, size and modification time (ns) of each file of a checkpoint's folder."""

_SQLITE = "sqlite:///"


class NamedFiles:
    """Reads the files that a config names from where the config says. A relative path is looked for in the folders
    `paths_from` of the config, then in the working directory; what is found there, or in both, is a sentence in
    `doubts`. Each data source is hashed once, by `fingerprint` where one is given.
    """

    def __init__(self, fingerprint: Fingerprint | None = None, *, paths_from: Sequence[str] = ()) -> None:
        self.doubts: dict[str, str] = {}
        self._paths_from = paths_from
        self._fingerprint = fingerprint or methodcaller("fingerprint")
        self._fingerprints: dict[str, str] = {}

    @property
    def directory(self) -> Path:
        """The working directory of the run."""
        return Path.cwd()

    def fixed_file(self, path: str) -> Path:
        """Where a file is read that is fixed once the rows are prepared: a template, or a data source's code."""
        return Path(self.data(path))

    def function_file(self, path: str) -> Path:
        """Where the file of a reward, a loss, an estimator or a filter is read."""
        return Path(self.data(path))

    def data(self, path: str) -> str:
        """Where the config's file or folder of this name is, which may be several files (`*`). Where there is none, it
        would be in the first of the folders."""
        last = self.in_directory(path)
        is_last = bool(files_named(Path(last)))
        for folder in self._paths_from:
            found = os.path.normpath(Path(folder) / path)
            if files_named(Path(found)):
                if is_last and os.path.realpath(last) != os.path.realpath(found):
                    self.doubts[path] = f"{path} is read from {folder}; another one lies in the working directory"
                return found
        if is_last and self._paths_from:
            self.doubts[path] = f"{path} is read from the working directory; there is none in {self._paths_from[0]}"
        return last if is_last or not self._paths_from else os.path.normpath(Path(self._paths_from[0]) / path)

    def in_directory(self, path: str) -> str:
        """Where a file that the run itself writes is, such as a database."""
        return path

    def checkpoint(self, path: str) -> str:
        """The folder of a checkpoint, or its name on the hub."""
        folder = self.data(path)
        return folder if os.path.isdir(folder) else path  # noqa: PTH112 - Path.is_dir raises on a name that is too long

    def problems(self) -> list[Problem]:
        """A warning about each file of the config that may be another one than is meant."""
        fix = "write the path from the folder of the config"
        return [Problem("paths_from", doubt, fix, fatal=False) for doubt in self.doubts.values()]

    def text(self, path: str | None) -> str | None:
        """The text of a template, so that an edit counts as a change. Raises ValueError where it cannot be read."""
        if path is None:
            return None
        try:
            return read_utf8(self.fixed_file(path))
        except OSError as error:
            raise ValueError(f"the config names {path}, which cannot be read: {error.strerror}") from None

    def code_of(self, function: str, place_of: Callable[[str], Path] | None = None) -> Mapping[str, str]:
        """[file, relative to the folder of the function or of its package] -> hash, of a user function and of what it
        imports from there; `place_of` says where its file is read, if that is not `function_file`. Raises ValueError
        where a file cannot be read."""
        path = file_named(function)
        try:
            if path is None:
                return find_function(function).code
            place = (place_of or self.function_file)(path)
            return {file.relative_to(place.parent).as_posix(): hash_file(file) for file in files_of(place)}
        except OSError as error:
            raise ValueError(f"the config names {path or function}, which cannot be read: {error.strerror}") from None

    def fingerprint(self, name: str, source: DataSource) -> str:
        """Hash of a data source: "train", "validation" or "cold_start". Raises ValueError where it cannot be read."""
        if name not in self._fingerprints:
            self._fingerprints[name] = self._fingerprint(source.located(self))
        return self._fingerprints[name]

    def weights(self, source: ModelSource) -> WeightFiles | None:
        """The files of a local checkpoint, with sizes and times, since hashing gigabytes would take seconds. None for
        tiny models and for names on the hub: whether a branch has moved is not checked."""
        if not isinstance(source, PretrainedModel):
            return None
        folder = Path(self.checkpoint(source.path))
        if not folder.is_dir():
            return None
        files = sorted(path for path in folder.iterdir() if path.is_file())
        return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files]


def located_config(config: RunConfig, files: NamedFiles | None = None) -> RunConfig:
    """The config for the stages, with every path as it can be read from here. It is not shown, named or hashed."""
    files = files or NamedFiles(paths_from=config.paths_from)
    data, cold_start, model, database = config.data, config.cold_start, config.model.source, config.tracking.mlflow_uri
    if isinstance(model, PretrainedModel):
        model = model.model_copy(update={"path": files.checkpoint(model.path)})
    if database is not None and database.startswith(_SQLITE):
        database = _SQLITE + files.in_directory(database.removeprefix(_SQLITE))
    tools, custom_functions = config.tools, config.algorithm.custom_functions()
    changes: dict[str, Any] = {
        "data": data.model_copy(
            update={
                "train": data.train.located(files),
                "validation": data.validation.located(files),
                "prompt_template": data.prompt_template and str(files.fixed_file(data.prompt_template)),
                "override_chat_template": data.override_chat_template
                and str(files.fixed_file(data.override_chat_template)),
            }
        ),
        "model": config.model.model_copy(
            update={"source": model, "family": _located_function(config.model.family, files.fixed_file)}
        ),
        "reward": _located_reward(config.reward, files),
        "algorithm": config.algorithm.model_copy(
            update={key.rpartition(".")[2]: custom.located(files.function_file) for key, custom in custom_functions}
        ),
        "tracking": config.tracking.model_copy(update={"mlflow_uri": database}),
    }
    if tools is not None:
        use = tuple(_located_function(tool, files.function_file) for tool in tools.use)
        environment = _located_function(tools.environment, files.function_file)
        changes["tools"] = tools.model_copy(update={"use": use, "environment": environment})
    if cold_start is not None and cold_start.source is not None:
        changes["cold_start"] = cold_start.model_copy(update={"source": cold_start.source.located(files)})
    return config.model_copy(update=changes)


def _located_function(function: str | None, place_of: Callable[[str], Path]) -> str | None:
    path = file_named(function or "")
    if path is None or function is None:
        return function
    return f"{place_of(path)}{function.removeprefix(path)}"


def _located_reward(reward: RewardConfig, files: NamedFiles) -> RewardConfig:
    def of_function(function: str | None) -> str | None:
        return _located_function(function, files.function_file)

    def of_choice(choice: Choice) -> Choice:
        terms = tuple(term.model_copy(update={"function": of_function(term.function)}) for term in choice.mixture)
        return choice.model_copy(update={"function": of_function(choice.function), "mixture": terms})

    by_source = {name: of_choice(choice) for name, choice in reward.by_source.items()}
    return of_choice(reward).model_copy(update={"by_source": by_source})
