"""Whether the installed torch computes on this machine's GPU. The forecast and the settings of a run ask the driver for
the GPU, but its workers ask torch, and without this check would train on the CPU with the settings of a GPU."""

import ast
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from rl_core.planning.gpu import Gpu, driver_version
from rl_core.problem import Problem

FIRST_DRIVERS: Final = {12: 525, 13: 580}
"""[major version of CUDA] -> the first driver for Linux that runs what was built with it (NVIDIA, "CUDA Compatibility",
minor version compatibility)."""

_ON_THE_CPU: Final = "to train on the CPU, set CUDA_VISIBLE_DEVICES='', or cluster.device to cpu"


def unusable_gpu(gpu: Gpu | None) -> Problem | None:
    """What keeps the installed torch from computing on this GPU; None where nothing does, and for a GPU that is not
    here. Torch is asked itself, in a process of its own, if the driver seems too old: with NVIDIA's compatibility
    packages it may see the GPU all the same."""
    if gpu is None or gpu.is_elsewhere:
        return None
    version, cuda = _torch_build()
    if cuda is None:
        return Problem(
            where="GPU",
            what=f"this machine has one ({gpu.name or 'its name is not known'}), but the installed torch {version} was "
            f"built without CUDA and computes on the CPU",
            fix=f"install the builds for GPUs (make clean && make install ACCELERATOR=gpu); {_ON_THE_CPU}",
        )
    driver, first = driver_version(), FIRST_DRIVERS.get(int(cuda.partition(".")[0]), 0)
    if driver is None or int(driver.partition(".")[0]) >= first or _torch_sees_a_gpu():
        return None
    return Problem(
        where="GPU",
        what=f"its driver is {driver}, but the installed torch {version} was built with CUDA {cuda}, which needs "
        f"driver {first} or later, and sees no GPU",
        fix=f"update the NVIDIA driver to {first} or later; {_ON_THE_CPU}",
    )


def _torch_build() -> tuple[str, str | None]:
    """The version of the installed torch, and of the CUDA that it was built with, if any. Its small file of versions is
    read and not executed; importing torch would take seconds."""
    spec = find_spec("torch")
    assert spec is not None and spec.submodule_search_locations is not None, "a dependency"
    stated: dict[str, Any] = {}
    for node in ast.parse(Path(spec.submodule_search_locations[0], "version.py").read_text()).body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=value))
            ):
                stated[name] = value
    return stated["__version__"], stated["cuda"]


def _torch_sees_a_gpu() -> bool:
    command = [sys.executable, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
