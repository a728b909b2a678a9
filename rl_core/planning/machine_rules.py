"""Rules between a config and this machine: files, packages, kernels, GPUs and cores."""

import importlib.util
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rl_core.config.run import RunConfig
from rl_core.environment import usable_cores
from rl_core.files import NOTHING_THERE, files_named, why_no_file
from rl_core.planning.gpu import Gpu, attention_problems, driver_version
from rl_core.planning.hub import is_folder
from rl_core.problem import Problem
from rl_core.user_code.function import file_named
from rl_core.wording import shortened

FIRST_DRIVERS: Final = {12: 525, 13: 580}
"""[major version of CUDA] -> the first driver for Linux that runs what was built with it (NVIDIA, "CUDA Compatibility",
minor version compatibility)."""

_ON_THE_CPU: Final = "to train on the CPU, set CUDA_VISIBLE_DEVICES='', or cluster.device to cpu"


def machine_problems(config: RunConfig, gpu: Gpu | None) -> list[Problem]:
    """Problems with packages, cores and GPU of this machine; nothing is known here of a cluster that is joined."""
    return [
        *attention_problems(config.model, has_gpu=gpu is not None),
        *package_problems(config, gpu),
        *(_worker_problems(config, gpu) if config.cluster.address == "local" else ()),
    ]


def package_problems(config: RunConfig, gpu: Gpu | None = None) -> list[Problem]:
    """Packages that the config needs and that are not installed, and installed ones that are known to break a run."""
    tracking = config.tracking
    asked = {"tensorboard": tracking.tensorboard, "wandb": tracking.wandb is not None, "swanlab": tracking.swanlab}
    problems = [
        Problem(
            f"tracking.{library}",
            f"the package {library} is not installed",
            f".venv/bin/pip install -c constraints.txt -e '.[trackers]', or turn tracking.{library} off",
        )
        for library, is_asked in asked.items()
        if is_asked and importlib.util.find_spec(library) is None
    ]
    if not (config.cluster.is_alone and gpu is None) and importlib.util.find_spec("ray") is None:
        what = "workers run in a Ray cluster, and the package ray is not installed"
        problems.append(Problem("cluster", what, ".venv/bin/pip install -c constraints.txt ray"))
    if importlib.util.find_spec("deepspeed") is not None:
        what = "deepspeed is installed, and transformers changes how it loads and saves checkpoints when it is"
        problems.append(Problem("environment", what, "remove it from this environment: pip uninstall deepspeed"))
    return problems


def _worker_problems(config: RunConfig, gpu: Gpu | None) -> Iterator[Problem]:
    cluster, cores = config.cluster, usable_cores()
    if cluster.nodes > 1:
        yield Problem(
            "cluster.nodes",
            f"a local cluster has one machine, not {cluster.nodes}",
            "start a Ray cluster on the machines (docs/cluster.md), and name it in cluster.address",
        )
    if cluster.device == "cuda" and gpu is None:
        yield Problem(
            "cluster.device",
            "cuda, but this machine has no GPU that may be used",
            "set cluster.device to cpu, or look at nvidia-smi and CUDA_VISIBLE_DEVICES",
        )
    if cluster.device != "cpu" and gpu is not None:
        return
    if 1 < cluster.devices > cores:
        yield Problem(
            "cluster.devices",
            f"{cluster.devices} workers share the {cores} core(s) that this process may use",
            f"set it to {cores} or less, unless this is a trial",
            fatal=False,
        )
    asked = (cluster.threads or 0) * cluster.devices
    if asked > cores:
        yield Problem(
            "cluster.threads",
            f"{asked} thread(s) share the {cores} core(s) that this process may use, which takes longer",
            f"set it to {max(1, cores // cluster.devices)} or less, unless the run of a machine with more cores is to "
            "be repeated",
            fatal=False,
        )


def unusable_gpu(gpu: Gpu | None) -> Problem | None:
    """What keeps the installed torch from computing on this GPU, if anything does: the workers would train on the CPU
    with the settings of a GPU. Where the driver seems too old, torch is asked itself in a process of its own, since it
    may see the GPU with NVIDIA's compatibility packages."""
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
    """The version of the installed torch, and of its CUDA, if any, without importing it, which takes seconds."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.submodule_search_locations is not None, "a dependency"
    stated = runpy.run_path(str(Path(spec.submodule_search_locations[0], "version.py")))
    return stated["__version__"], stated["cuda"]


def _torch_sees_a_gpu() -> bool:
    command = [sys.executable, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def file_problems(config: RunConfig) -> list[Problem]:
    """Every file and folder that the configuration names and that does not exist or is of another kind."""
    return [problem for named in _named_paths(config) for problem in _path_problems(*named)]


def _named_paths(config: RunConfig) -> Iterator[tuple[str, Path, str]]:
    if config.data.prompt_template is not None:
        yield "data.prompt_template", Path(config.data.prompt_template), "file"
    if config.data.override_chat_template is not None:
        yield "data.override_chat_template", Path(config.data.override_chat_template), "file"
    for key, term in config.reward.keyed_terms():
        file = file_named(term.function)
        if file is not None:
            yield key, Path(file), "file"
    for key, source in config.sources():
        for field, path, kind in source.paths():
            yield f"{key}.{field}", path, kind


def _path_problems(key: str, path: Path, kind: str) -> Iterator[Problem]:
    is_there = is_folder(path)
    if is_there and "folder" in kind:
        return
    found = [path] if is_there else files_named(path)
    if kind != "folder" and found:
        for file in found:
            if (why := why_no_file(file)) is not None:
                yield Problem(key, f"{shortened(str(file))} cannot be read: {why}", "name a file on a disk")
        return
    why = why_no_file(path) or "it is a file"
    what = f"there is no {kind} {shortened(str(path))}" + ("" if why == NOTHING_THERE else f": {why}")
    yield Problem(key, what, f"write {shortened(str(path.absolute()))}, or correct the path")
