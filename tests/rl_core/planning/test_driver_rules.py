"""The installed torch is held against the driver of this machine's GPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rl_core.planning.driver_rules import unusable_gpu
from rl_core.planning.gpu import Gpu, find_gpu
from tests.rl_core.planning.gpu_driver import put_driver

H100 = "81559, NVIDIA H100 80GB HBM3, Disabled"

ASK = """
import sys
from rl_core.planning.driver_rules import unusable_gpu
from rl_core.planning.gpu import find_gpu
print(unusable_gpu(find_gpu()))
assert "torch" not in sys.modules
"""

VERSIONS = """
from typing import Optional

__all__ = ['__version__', 'cuda']
__version__ = '2.13.0'
cuda: Optional[str] = {cuda!r}
"""
"""torch/version.py as the builds of torch have it."""


def said_of_a_cuda_build(folder: Path, cuda: str, *, sees_a_gpu: bool) -> str:
    """What is said where the installed torch is built with CUDA: a package of that name which comes first."""
    package = folder / "torch"
    package.mkdir()
    package.joinpath("version.py").write_text(VERSIONS.format(cuda=cuda))
    package.joinpath("__init__.py").write_text(f"class cuda:\n    is_available = lambda: {sees_a_gpu}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_build_for_the_cpu_beside_a_gpu_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch.version.cuda is None, "tests run with the builds for the CPU"
    put_driver(tmp_path, monkeypatch, H100)
    problem = unusable_gpu(find_gpu())
    assert problem is not None and problem.fatal
    assert (
        f"(NVIDIA H100 80GB HBM3), but the installed torch {torch.__version__} was built without CUDA" in problem.what
    )


def test_no_gpu_and_one_elsewhere_have_no_problem() -> None:
    assert unusable_gpu(None) is None
    assert unusable_gpu(Gpu(memory_gib=80.0, is_elsewhere=True)) is None


@pytest.mark.parametrize(
    ("driver", "cuda", "sees_a_gpu", "needed"),
    [
        ("580.65.06", "13.0", False, None),
        ("595.10", "13.0", False, None),
        ("575.57.08", "13.0", False, "580"),
        ("550.54.15", "13.0", True, None),  # with NVIDIA's compatibility package
        ("550.54.15", "12.8", False, None),
        ("470.256.02", "12.8", False, "525"),
    ],
)
def test_a_driver_that_is_too_old_for_the_build_is_a_problem_with_both_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, cuda: str, sees_a_gpu: bool, needed: str | None
) -> None:
    put_driver(tmp_path, monkeypatch, H100, version=driver)
    said = said_of_a_cuda_build(tmp_path, cuda, sees_a_gpu=sees_a_gpu)
    if needed is None:
        assert said == "None"
    else:
        assert f"its driver is {driver}" in said and f"built with CUDA {cuda}, which needs driver {needed}" in said
        assert f"update the NVIDIA driver to {needed} or later" in said
