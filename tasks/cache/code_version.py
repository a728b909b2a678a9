"""Which code runs here: the package's version, and its commit where it runs from a git work tree."""

import os
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

PACKAGE = "sightline"


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeVersion:
    """Which state of this project's code.

    Attributes:
        package: The installed package's version.
        commit: Commit of the work tree, 40 hexadecimal digits; None for an installed package.
        is_changed: Whether tracked files differ from that commit.
    """

    package: str
    commit: str | None
    is_changed: bool

    def __str__(self) -> str:
        """`0.1.0`, `0.1.0+g7d3f0f2`, or `0.1.0+g7d3f0f2.changed` (a local version as PEP 440 has it)."""
        if self.commit is None:
            return self.package
        return f"{self.package}+g{self.commit[:7]}{'.changed' * self.is_changed}"


@cache
def code_version() -> CodeVersion:
    """What this process runs, read once."""
    return read_code_version(Path(__file__))


def read_code_version(file: Path) -> CodeVersion:
    """The same for one of the package's files. A file that git does not track has no commit: an environment may lie
    inside another project's work tree, whose commit says nothing about this code."""
    package = version(PACKAGE)
    tracked = _git(file, "ls-files", "--error-unmatch", file.name)
    commit = _git(file, "rev-parse", "HEAD") if tracked else None
    if commit is None:
        return CodeVersion(package=package, commit=None, is_changed=False)
    return CodeVersion(package=package, commit=commit, is_changed=bool(_git(file, "diff", "--name-only", "HEAD")))


def _git(file: Path, *arguments: str) -> str | None:
    """What git says in the file's folder; None where it is not installed or refuses."""
    # In a hook, git names the repository it is at work on: not the one asked about.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=file.parent, env=variables, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
