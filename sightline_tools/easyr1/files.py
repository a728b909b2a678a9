"""Conversions of EasyR1's paths: the user's own files, which are searched for, and datasets of the form
`path@split`."""

import re
from pathlib import Path
from typing import Any

from rl_core.sources.file_kinds import FILE_KINDS
from rl_core.sources.hub import SPLIT_NAME
from sightline_tools.easyr1.key import Assignments, Convert, EasyR1Config, NoEquivalent, Refused

_PLACES = "here, in the config's folder or above it: give its path from here"
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_REWARD = "worker.reward.reward_function"


def found_above(path: str | Path, folder: Path) -> Path | None:
    """Search for a file that EasyR1 finds from its own folder: from the working directory, then from a folder
    upwards."""
    folders = [Path(), folder, *folder.absolute().parents]
    return next((each / path for each in folders if (each / path).exists()), None)


def locate(path: str, config: EasyR1Config) -> str | None:
    """Search for a file from the folder of the user's config (`found_above`). Returns a path relative to the working
    directory if the file lies below it and the equivalent in it, otherwise an absolute path; None where there is no
    such file."""
    found = found_above(path, config.folder)
    if found is None:
        return None
    absolute = found.resolve()
    here = Path.cwd()
    return str(
        absolute.relative_to(here) if absolute.is_relative_to(here) and config.out.resolve() == here else absolute
    )


def file_at(key: str) -> Convert:
    """Takes over the path of a file as `key`; a file that does not exist is refused."""

    def convert(value: Any, config: EasyR1Config) -> Assignments:
        if value is None:
            return {key: None}
        found = locate(str(value), config)
        if found is None:
            raise Refused(f"there is no file {value} {_PLACES}")
        return {key: found}

    return convert


def reward_function(value: Any, config: EasyR1Config) -> Assignments:
    """The reward as `file.py:function`; if no function is named, it is `main`, as in EasyR1."""
    if value is None:
        raise NoEquivalent("a run needs a reward: set reward.function, for instance to `math`")
    file, function = _reward_file(value, config)
    if file is None:
        raise Refused(f"there is no file {value} {_PLACES}")
    return {
        "reward.function": f"{file}:{function}",
        "evaluation.accuracy_key": "accuracy" if names_accuracy(value, config) else "overall",
    }


def names_accuracy(value: Any, config: EasyR1Config) -> bool:
    """Whether the reward file has the text 'accuracy' in quotes; true where there is no file."""
    file = None if value is None else _reward_file(value, config)[0]
    return file is None or re.search(r"""["']accuracy["']""", _text(file)) is not None


def reward_type(value: Any, config: EasyR1Config) -> Assignments:
    """The interface of the reward: as the config says, otherwise as the file says, otherwise EasyR1's default."""
    if value is None and config[_REWARD] is not None:
        file, _ = _reward_file(config[_REWARD], config)
        value = None if file is None or "REWARD_TYPE" in _text(file) else "batch"
    return {"reward.reward_type": value}


def _reward_file(value: str, config: EasyR1Config) -> tuple[str | None, str]:
    """The path of the reward file (None where it does not exist) and the name of the function."""
    file, _, function = value.partition(":")
    return locate(file, config), function or "main"


def _text(path: str) -> str:
    """The text of a reward file; empty where it is no file."""
    return Path(path).read_text(encoding="utf-8", errors="replace") if Path(path).is_file() else ""


def checkpoint(value: Any, config: EasyR1Config) -> Assignments:
    """The checkpoint: a folder or a name on the hub."""
    is_folder = value is not None and Path(value).is_dir()
    return {
        "model.source.type": "pretrained",
        "model.source.path": locate(value, config) if is_folder else value,
    }


def data_source(key: str) -> Convert:
    """Takes `path@split` over as the source `key`: a file, or a split of a folder or of a hub dataset.
    EasyR1's split is `train` where none is named."""

    def convert(value: Any, config: EasyR1Config) -> Assignments:
        path, _, split = str(value or "").partition("@")
        if not path:
            raise NoEquivalent(f"a run needs rows: set {key}")
        found = locate(path, config)
        if found is not None:
            return {key: _folder(found, split, key) if Path(found).is_dir() else _file(found, split, key)}
        if _HUB_NAME.fullmatch(path):
            return {key: _split(path, split)}
        raise NoEquivalent(f"there is no file or folder {path}, and it cannot be a name on the hub; set {key} yourself")

    return convert


def _split(name: str, split: str) -> dict[str, str]:
    """A split of a dataset on the hub, or of a folder in its place. A local source would read all splits of a folder
    together."""
    return {"type": "hub", "name": f"{name}@{split or 'train'}"}


def _folder(path: str, split: str, key: str) -> dict[str, str]:
    source = _split(path, split)
    if not re.fullmatch(SPLIT_NAME, source["name"]):
        raise NoEquivalent(f"a folder is named as `path@split`, without spaces or another @; rename it, or set {key}")
    return source


def _file(path: str, split: str, key: str) -> dict[str, str]:
    if Path(path).suffix.removeprefix(".") not in FILE_KINDS:
        endings = ", ".join(f".{kind}" for kind in FILE_KINDS)
        raise NoEquivalent(f"a file's name must end in one of {endings}; set {key} to such a file")
    source = {"type": "local", "path": path}
    if split not in ("", "train"):  # in EasyR1 the rows of a file are the split `train`
        raise NoEquivalent(
            f"a file has no split `{split}`, all of its rows are read; set {key}.limit to read only the first",
            {key: source},
        )
    return source


def image_folder(value: Any, config: EasyR1Config) -> Assignments:
    """The folder of images and videos, for both sources."""
    if value is None:
        return {}
    found = locate(str(value), config)
    if found is None:
        raise Refused(f"there is no folder {value} {_PLACES}")
    return {"data.train.media_dir": found, "data.validation.media_dir": found}
