"""pyproject.toml names what the code imports, and constraints.txt pins every name."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("flows", "tasks", "rl_core")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def normalised(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!; ]", requirement)[0]).lower()


def imported_names() -> set[str]:
    """Top-level names of every absolute import in the packages, those inside functions included."""
    names: set[str] = set()
    for package in PACKAGES:
        for path in (REPOSITORY / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    names |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                    names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - set(PACKAGES)


def pins() -> dict[str, str]:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    return {normalised(line): line for line in lines if line and not line.startswith("#")}


def test_every_import_is_a_declared_dependency() -> None:
    declared = {normalised(requirement) for requirement in PROJECT["dependencies"]}
    extras = PROJECT["optional-dependencies"]
    declared |= {normalised(name) for extra in ("cpu", "gpu", "flash", "trackers") for name in extras[extra]}
    providers = packages_distributions()
    undeclared = {
        name
        for name in imported_names()
        if not declared & {normalised(provider) for provider in providers.get(name, [name])}
    }
    assert not undeclared


def test_every_dependency_is_pinned_once() -> None:
    extras = PROJECT["optional-dependencies"]
    wanted = {normalised(requirement) for group in extras.values() for requirement in group}
    wanted |= {normalised(requirement) for requirement in PROJECT["dependencies"]}
    assert wanted - set(pins()) == {"flash-attn"}, "flash-attn is built by hand, in a version that fits the machine"
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins().values())


def test_no_index_and_no_path_of_a_machine_is_written_into_the_packaging() -> None:
    for name in ("pyproject.toml", "constraints.txt", "Makefile", ".ci/run"):
        text = (REPOSITORY / name).read_text()
        assert not re.search(r"https?://|file://|find-links|/opt/|/home/|/root/", text), name
