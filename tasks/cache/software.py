"""The software that makes a stage: the code that it calls, the versions of packages, the device.

It is not part of a stage's digest (tasks.cache.stages): a run goes on with other software than it was started with, and
reports this. A stage of another run is taken over only where all of its software is the same.
"""

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from rl_core.config.cluster import ClusterConfig
from rl_core.config.run import RunConfig
from rl_core.device import cpu_words
from rl_core.environment import threads_of_a_worker
from rl_core.planning.gpu import find_gpu
from rl_core.sources.custom import CustomSource
from rl_core.sources.mixture import MixtureSource
from rl_core.sources.source import DataSource
from rl_core.user_code.files import files_of, imported_names
from rl_core.user_code.function import file_named, find_function, is_user_function
from tasks.cache.named_files import NamedFiles
from tasks.cache.packages import versions_of
from tasks.cache.source_closure import OWN_PACKAGES, SOURCES, rooms_of
from tasks.cache.stage_code import STAGE_CODE, code_of

Software = Mapping[str, str]
"""[part] -> value: the version of a distribution, the digest of a package's code (`rl_core.algorithms`), the device.
Where a part changed while the stage was made, all its values (`continued`). Empty where the software was not
recorded."""

Changes = Mapping[str, tuple[str, str]]
"""[part] -> (former value, present value)."""

NOT_NOTED: Final = "it does not say by which software it was made"

_ABSENT, _NOT_NOTED = "none", "not noted"
_NEXT, _SINCE = "; ", " after step "
_MOST_NAMES = 4
_DEVICE = "device"
_WORKERS = "workers"
_ON_DEVICE = {"cold-start", "train", "evaluate"}
"""Kinds of stages whose last bits depend on the number of threads, without a GPU (docs/architecture.md)."""

_BY_ALL_WORKERS = ("cold-start", "train")
"""Kinds of stages that several workers compute together. In an evaluation each response is computed by one of them."""

_BUILTIN = "rl_core.rewards.builtin"


def software_of_stages(config: RunConfig, files: NamedFiles, *, sources: Path = SOURCES) -> dict[str, Software]:
    """[kind of stage] -> the software with which this process would make it. The sources are read, not imported.

    Args:
        config: The config of the run.
        files: How the files of a user's functions are read.
        sources: The folder of this project's packages.

    Raises:
        OSError: the file of a user's function cannot be read.
        ValueError: a function of an installed package does not exist.
    """
    imported, here = _configured_names(config, files), device(config.cluster)
    found = {kind: _software_of(kind, imported.get(kind, set()), here, sources) for kind in STAGE_CODE}
    return with_workers(found, config.cluster)


def with_workers(found: Mapping[str, Software], cluster: ClusterConfig) -> dict[str, Software]:
    """The same software on these workers: how many train together, and how, decides how sums are split. A single one
    is not named."""
    there = {_DEVICE: device(cluster), **_workers(cluster)}
    others = {kind: {name: value for name, value in found[kind].items() if name != _WORKERS} for kind in found}
    return {**found, **{kind: {**others[kind], **there} for kind in _BY_ALL_WORKERS}}


def device(cluster: ClusterConfig) -> str:
    """The device of each worker: "GPU", or the CPU with its number of threads, which decides how sums are split."""
    may_be_gpu = not versions_of(["torch"]).get("torch", "").endswith("+cpu")
    if may_be_gpu and find_gpu(cluster.device) is not None:
        return "GPU"
    return cpu_words(threads_of_a_worker(cluster.devices, fixed=cluster.threads))


def _workers(cluster: ClusterConfig) -> Software:
    """How many workers train together and how, which decides how sums are split; nothing for a single one."""
    if cluster.trainers == 1:
        return {}
    together = {"sequence": cluster.sequence_parallel_size, "generator": cluster.tensor_parallel_size}
    groups = "".join(f", {size} for each {what}" for what, size in together.items() if size > 1)
    return {_WORKERS: f"{cluster.nodes} x {cluster.training_devices}, sharding {cluster.sharding}{groups}"}


def differences(before: Software, now: Software) -> Changes:
    """The parts whose value has changed since a stage was made."""
    names = sorted(before.keys() | now.keys())
    pairs = {name: (before.get(name, _ABSENT), now.get(name, _ABSENT)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def changes_since(before: Software, now: Software) -> Changes:
    """The parts whose value has changed since a stage was last worked on: of a part with several values, the last
    counts."""
    return differences({name: _last(value) for name, value in before.items()}, now)


def continued(before: Software, now: Software, *, step: int) -> dict[str, str]:
    """The software of a training that goes on with other software.

    Args:
        before: The software until now; empty where it was not recorded.
        now: The software with which training goes on.
        step: The step after which it goes on.
    """
    missing = _ABSENT if before else _NOT_NOTED
    return {
        name: _joined(before.get(name, missing), now.get(name, _ABSENT), step)
        for name in sorted(before.keys() | now.keys())
    }


def in_words(changes: Changes) -> str:
    """`torch 2.12.0 -> 2.13.0, the code of rl_core.algorithms`."""
    rooms = [name for name in changes if _is_own(name)]
    others = [f"{name} {before} -> {now}" for name, (before, now) in changes.items() if name not in rooms]
    return ", ".join(filter(None, [_first(others), f"the code of {_first(rooms)}" if rooms else ""]))


def _first(words: Sequence[str]) -> str:
    more = f" and {len(words) - _MOST_NAMES} more" if len(words) > _MOST_NAMES else ""
    return f"{', '.join(words[:_MOST_NAMES])}{more}"


def _is_own(name: str) -> bool:
    """Whether a dotted name belongs to this project."""
    return name.partition(".")[0] in OWN_PACKAGES


def _joined(before: str, now: str, step: int) -> str:
    return before if _last(before) == now else f"{before}{_NEXT}{now}{_SINCE}{step}"


def _last(value: str) -> str:
    return value.rpartition(_NEXT)[2].partition(_SINCE)[0]


def _software_of(kind: str, imported: set[str], device: str, sources: Path) -> Software:
    modules = code_of(kind, imported=imported, sources=sources)
    names = imported.union(*(source.names for source in modules.values()))
    return {
        **rooms_of(modules, sources),
        **versions_of(name for name in names if not _is_own(name)),
        "Python": ".".join(platform.python_version_tuple()[:2]),
        **({_DEVICE: device} if kind in _ON_DEVICE else {}),
    }


def _configured_names(config: RunConfig, files: NamedFiles) -> dict[str, set[str]]:
    """[kind of stage] -> dotted names of the built-in rewards that it calls, and the names that a user's functions
    import."""
    rewards = {term.function for _, term in config.reward.keyed_terms()}
    algorithm = {custom.function for _, custom in config.algorithm.custom_functions()}
    given = [config.data.train, config.data.validation, *([config.cold_start.source] if config.cold_start else [])]
    sources = {function for source in given for function in _functions_of(source)}
    scoring = {name for function in rewards for name in _names(function, files.function_file)}
    return {
        "prepare": {name for function in sources for name in _names(function, files.source_code)},
        "train": scoring.union(*(_names(function, files.function_file) for function in algorithm)),
        "evaluate": scoring,
    }


def _functions_of(source: DataSource | None) -> Iterator[str]:
    match source:
        case CustomSource():
            yield source.function
        case MixtureSource():
            for part in source.sources.values():
                yield from _functions_of(part)


def _names(function: str, place: Callable[[str], Path]) -> set[str]:
    """The dotted names that a function imports; `place` says where a user's file is read."""
    if not is_user_function(function):
        return {f"{_BUILTIN}.{function}"}
    path = file_named(function)
    if path is None:
        found = find_function(function)
        return imported_names(found.files, found.root)
    file = place(path)
    return imported_names(files_of(file), file.parent)
