"""The version of Sightline that runs: the package's version, and the commit where it runs from a git work tree."""

import os
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

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
