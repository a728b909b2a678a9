"""By which software a stage is made: the code that it calls, the versions of the packages, the device.

It is no part of what is asked for (tasks.cache.stages): a run goes on with other software than it was begun with, and
says so. What another run made is taken over only where all of it is the same.
"""

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from rl_core.config.run import RunConfig
from rl_core.planning.gpu import find_gpu
from rl_core.user_code.files import files_of, imported_names
from rl_core.user_code.function import find_function, is_user_function
from tasks.cache.named_files import NamedFiles
from tasks.cache.packages import versions_of
from tasks.cache.source_closure import OWN_PACKAGES, SOURCES, rooms_of
from tasks.cache.stage_code import STAGE_CODE, code_of

Software = Mapping[str, str]
"""Name of a part -> what it was: a distribution's version, the digest of a room's code (`rl_core.algorithms`), the
device. Where a part changed while the stage was made, all that it was (`continued`). Empty where nobody noted it."""

Changes = Mapping[str, tuple[str, str]]
"""Name of a part -> what it was and what it is."""

NOT_NOTED: Final = "it does not say by which software it was made"

_ABSENT, _NOT_NOTED = "none", "not noted"
_NEXT, _SINCE = "; ", " after step "
_MOST_NAMES = 4
_DEVICE = "device"
_ON_DEVICE = {"cold-start", "train", "evaluate"}
"""Kinds of stages whose last bits depend on the number of threads, without a GPU (docs/architecture.md)."""

_BUILTIN = "rl_core.rewards.builtin"


def software_of_stages(config: RunConfig, files: NamedFiles, *, sources: Path = SOURCES) -> dict[str, Software]:
    """[kind of stage] -> by which software it would be made by this process. The sources are read, not imported.

    Args:
        config: The run.
        files: How what it names is read: the files of the rewards.
        sources: The folder of this project's packages.

    Raises:
        OSError: a reward's file cannot be read.
        ValueError: a reward of an installed package is not there.
    """
    rewards = _reward_names(config, files)
    here = device()
    return {kind: _software_of(kind, rewards, here, sources) for kind in STAGE_CODE}


def device() -> str:
    """What computes: "GPU", or the processor with its threads, which decide where a sum is cut."""
    if not versions_of(["torch"]).get("torch", "").endswith("+cpu") and find_gpu() is not None:
        return "GPU"
    threads = os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))
    return f"CPU with {threads} thread(s)"


def differences(before: Software, now: Software) -> Changes:
    """The parts in which a stage that was made is not what it would be now."""
    names = sorted(before.keys() | now.keys())
    pairs = {name: (before.get(name, _ABSENT), now.get(name, _ABSENT)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def changes_since(before: Software, now: Software) -> Changes:
    """The same for a stage that goes on: of a part that changed meanwhile, what it was in the end counts."""
    return differences({name: _last(value) for name, value in before.items()}, now)


def continued(before: Software, now: Software, *, step: int) -> dict[str, str]:
    """By which software a training is made that goes on with another one.

    Args:
        before: By which it was made until there; empty where nobody noted it.
        now: By which it goes on.
        step: It goes on after this step.
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
    """Whether a dotted name is of this project."""
    return name.partition(".")[0] in OWN_PACKAGES


def _joined(before: str, now: str, step: int) -> str:
    return before if _last(before) == now else f"{before}{_NEXT}{now}{_SINCE}{step}"


def _last(value: str) -> str:
    return value.rpartition(_NEXT)[2].partition(_SINCE)[0]


def _software_of(kind: str, rewards: set[str], device: str, sources: Path) -> Software:
    modules = code_of(kind, rewards=rewards, sources=sources)
    names = {name for source in modules.values() for name in source.names}
    if STAGE_CODE[kind].scores:
        names |= rewards
    return {
        **rooms_of(modules, sources),
        **versions_of(name for name in names if not _is_own(name)),
        "Python": ".".join(platform.python_version_tuple()[:2]),
        **({_DEVICE: device} if kind in _ON_DEVICE else {}),
    }


def _reward_names(config: RunConfig, files: NamedFiles) -> set[str]:
    """Dotted names of the built-in rewards, and those that a user's files import."""
    functions = [term.function for _, term in config.reward.keyed_terms()]
    names = {f"{_BUILTIN}.{function}" for function in functions if not is_user_function(function)}
    for path in config.reward.files:
        place = files.reward(path)
        names |= imported_names(files_of(place), place.parent)
    for function in config.reward.installed:
        found = find_function(function)
        names |= imported_names(found.files, found.root)
    return names
