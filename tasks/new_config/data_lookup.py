"""Resolves a name of data: a file or folder of this machine, or a data set of the hub."""

import re
from collections import Counter
from pathlib import Path

from rl_core.files import files_named, read_utf8
from rl_core.sources.file_kinds import FILE_KINDS
from rl_core.sources.hub import HubSource, config_names, resolve_commit, split_names
from rl_core.sources.local import LocalSource
from rl_core.wording import shortened
from tasks.new_config.held_out import HELD_OUT_NAMES, find_split, is_data

_HUB_NAME = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(:(?P<config>[\w.-]+))?(@(?P<split>[^@\s]+))?", re.ASCII)
_FILE_ENDINGS = tuple(f".{kind}" for kind in FILE_KINDS)
_SHOWN = 60


def source_of(data: str, media_dir: str | None) -> LocalSource | HubSource:
    """The data source of the name `data`; a data set of the hub gets its newest commit as revision. Raises ValueError
    where there is no such file or folder, and the hub cannot be reached or has no such data set."""
    if not _is_on_hub(data):
        return LocalSource(type="local", path=data, media_dir=media_dir)
    repository, config, split = _on_hub(data)
    name = f"{repository}@{split or _training_split(split_names(repository, config))}"
    source = HubSource(type="hub", name=name, config=config, media_dir=media_dir)
    return source.model_copy(update={"revision": resolve_commit(source.repository_name, None)})


def find_pair(data: str) -> tuple[str, str] | None:
    """Training and held-out data that belong together: files beside each other, or splits of a data set of the hub.
    Raises ValueError where two files have one of the names, there is no such data, or the hub cannot be reached."""
    if not _is_on_hub(data):
        pair = find_split(Path(data))
        return None if pair is None else (str(pair[0]), str(pair[1]))
    repository, config, split = _on_hub(data)
    if split:
        return None
    splits = split_names(repository, config)
    held_out = next((name for name in HELD_OUT_NAMES if name in splits), None)
    train = _training_split(splits)
    return None if held_out in (None, train) else (f"{data}@{train}", f"{data}@{held_out}")


def _on_hub(data: str) -> tuple[str, str | None, str | None]:
    """Repository, configuration and split of a name. Raises ValueError where it has neither of the latter, and the data
    set has several configurations."""
    found = _HUB_NAME.fullmatch(data)
    assert found is not None, "a name of the hub"
    repository, config, split = found["repository"], found["config"], found["split"]
    several = [] if config or split else config_names(repository)
    if len(several) > 1:
        names = ", ".join(f"{repository}:{name}" for name in several)
        raise ValueError(f"the data set {repository} has several configurations; name one of them: {names}")
    return repository, config, split


def training_data(data: str) -> str:
    """The path of the training data: `data`, or its subfolder `train` where only that holds data."""
    folder = Path(data)
    is_outer = folder.is_dir() and not is_data(folder) and (folder / "train").is_dir()
    return str(folder / "train") if is_outer else data


def names_given(text: str) -> tuple[str, ...]:
    """Names of classes: separated by commas, or in a file with one in each line. Raises ValueError where one is empty
    or there twice."""
    path = Path(text)
    lines = read_utf8(path).splitlines() if path.is_file() else text.split(",")
    names = tuple(line.strip() for line in lines)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if wrong := twice or [name for name in names if not name]:
        raise ValueError(
            f"--class-names {shortened(text, _SHOWN)}: {wrong[0]!r} is {'there twice' if twice else 'no name'}"
        )
    return names


def _training_split(splits: list[str]) -> str:
    return "train" if "train" in splits else splits[0]


def _is_on_hub(data: str) -> bool:
    """Whether the name is one of the hub and no path here. Raises ValueError where it is neither."""
    if files_named(Path(data)):
        return False
    if _HUB_NAME.fullmatch(data) and not data.endswith(_FILE_ENDINGS):
        return True
    raise ValueError(
        f"there is no file or folder {data}; a data set of the hub is named owner/name, with :configuration and @split "
        "where they are needed"
    )
