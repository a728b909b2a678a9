"""EasyR1's paths: the user's own files, found where they lie, and `path@split` data sets."""

import re
from pathlib import Path
from typing import Any

from rl_core.config.data import SPLIT_NAME
from rl_core.config.easyr1.key import Assignments, Convert, EasyR1Config, NoEquivalent

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def locate(path: str, config: EasyR1Config) -> str | None:
    """The path of a file that EasyR1 would find from its own folder: as it is, or from the folder of the user's config
    or one above it. Relative to the working directory where it lies below it; None where there is none."""
    folders = [Path(), config.folder, *config.folder.absolute().parents]
    found = next((folder / path for folder in folders if (folder / path).exists()), None)
    if found is None:
        return None
    absolute = found.resolve()
    return str(absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute)


def file_at(key: str) -> Convert:
    """Takes a file over under the Sightline key `key`."""

    def convert(value: Any, config: EasyR1Config) -> Assignments:
        if value is None:
            return {key: None}
        found = locate(str(value), config)
        if found is None:
            raise NoEquivalent(f"there is no file {value} here, beside the config or above it; set {key} yourself")
        return {key: found}

    return convert


def reward_function(value: Any, config: EasyR1Config) -> Assignments:
    """`file.py:function`; EasyR1 takes `main` where no function is named."""
    if value is None:
        raise NoEquivalent("a run needs a reward: set reward.function, for instance to `math`")
    file, _, function = str(value).partition(":")
    found = locate(file, config)
    if found is None:
        raise NoEquivalent(
            f"there is no file {file} here, beside the config or above it; set reward.function to where it lies, or to "
            "a built-in one"
        )
    return {"reward.function": f"{found}:{function or 'main'}"}


def data_source(key: str) -> Convert:
    """Takes `path@split` over as the source `key`: a file, or a split of a folder or of a hub data set.
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
        raise NoEquivalent(f"there is no file or folder {path}, and it is no name on the hub; set {key} yourself")

    return convert


def _split(name: str, split: str) -> dict[str, str]:
    """Of a hub data set, or of a folder in its place: a local source would read all of its splits as one."""
    return {"type": "hub", "name": f"{name}@{split or 'train'}"}


def _folder(path: str, split: str, key: str) -> dict[str, str]:
    source = _split(path, split)
    if not re.fullmatch(SPLIT_NAME, source["name"]):
        raise NoEquivalent(f"a folder is read by `path@split` without spaces and another @; rename it or set {key}")
    return source


def _file(path: str, split: str, key: str) -> dict[str, str]:
    source = {"type": "local", "path": path}
    if split not in ("", "train"):  # a file's rows are the split `train` in EasyR1
        raise NoEquivalent(
            f"a file is read whole, without `{split}`; set {key}.limit for its first rows", {key: source}
        )
    return source


def image_folder(value: Any, config: EasyR1Config) -> Assignments:
    """The folder of the media, for both sources."""
    if value is None:
        return {}
    found = locate(str(value), config)
    if found is None:
        raise NoEquivalent(f"there is no folder {value} here, beside the config or above it; set media_dir yourself")
    return {"data.train.media_dir": found, "data.validation.media_dir": found}
