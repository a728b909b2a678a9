"""pyproject.toml names what the code imports, and constraints.txt pins every name."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from rl_core.planning.machine_rules import FIRST_DRIVERS

REPOSITORY = Path(__file__).parents[1]
PACKAGES = ("flows", "sightline_tools", "tasks", "rl_core")
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


def test_a_wheel_has_every_package_that_the_import_contracts_name() -> None:
    tool = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]
    assert set(tool["hatch"]["build"]["targets"]["wheel"]["packages"]) == set(PACKAGES)
    assert set(tool["importlinter"]["root_packages"]) == set(PACKAGES)


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


class Checkout:
    """A checkout on a pretended machine: its driver, its free disk, and a .venv whose Python only notes its calls."""

    def __init__(self, folder: Path, *, driver: str, free: str) -> None:
        self._folder, self._programs = folder, folder / "programs"
        folder.joinpath("benchmarks").mkdir(exist_ok=True)
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "benchmarks/trl-requirements.txt"):
            shutil.copy(REPOSITORY / name, folder / name)
        shutil.copytree(REPOSITORY / "startup", folder / "startup", dirs_exist_ok=True)
        folder.joinpath("startup", "__pycache__").mkdir(exist_ok=True)  # as any interpreter may leave it
        self._write(self._programs / "nvidia-smi", f"echo {driver}")
        self._write(self._programs / "df", f"printf '    Avail\\n{free}\\n'")
        self._write(folder / ".venv/bin/python", f'echo "$@" >> {folder}/called')
        self._write(folder / ".venv/bin/pip", "")

    def install(self, accelerator: str) -> str:
        """What `make install` says on its standard error."""
        command = ["make", "install", f"ACCELERATOR={accelerator}"]
        environment = {"PATH": f"{self._programs}:/usr/bin:/bin"}
        done = subprocess.run(command, cwd=self._folder, env=environment, capture_output=True, text=True, check=False)
        return done.stderr

    def calls(self) -> int:
        """How often pip was called."""
        called = self._folder / "called"
        return len(called.read_text().splitlines()) if called.is_file() else 0

    def _write(self, program: Path, text: str) -> None:
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)


@pytest.mark.parametrize(
    ("driver", "free", "accelerator", "words"),
    [
        ("580.65.06", "16GB", "gpu", ""),
        ("580.65.06", "14GB", "gpu", "need about 15 GB, and 14 GB are free"),
        ("575.57.08", "500GB", "gpu", "The NVIDIA driver is 575.57.08, and the pinned torch needs 580 or later"),
        ("575.57.08", "8GB", "cpu", ""),
        ("", "6GB", "cpu", "need about 7 GB, and 6 GB are free"),
        ("", "500GB", "gpu", ""),  # an image is built where no driver is
    ],
)
def test_driver_and_disk_are_looked_at_before_anything_is_downloaded(
    tmp_path: Path, driver: str, free: str, accelerator: str, words: str
) -> None:
    checkout = Checkout(tmp_path, driver=driver, free=free)
    found = checkout.install(accelerator)
    assert words in found if words else found == ""
    assert checkout.calls() == (0 if words else 2)


def test_the_builds_for_the_other_device_are_not_mixed_in(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, driver="580.65.06", free="500GB")
    checkout.install("cpu")
    assert checkout.calls() == 2
    assert "make clean first" in checkout.install("gpu")
    assert checkout.install("cpu") == "" and checkout.calls() == 2, "it is there"


def test_an_installation_that_is_brought_up_to_date_needs_no_room_for_everything(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path, driver="", free="500GB")
    checkout.install("cpu")
    changed = Checkout(tmp_path, driver="", free="1GB")
    (tmp_path / "constraints.txt").write_text("")
    assert changed.install("cpu") == "" and changed.calls() == 4


def test_the_driver_that_make_demands_is_the_one_for_the_pinned_cuda() -> None:
    demanded = re.search(r"^FIRST_DRIVER := (\d+)$", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE)
    cuda = pins()["cuda-toolkit"].partition("==")[2].partition(".")[0]
    assert demanded and int(demanded[1]) == FIRST_DRIVERS[int(cuda)]
