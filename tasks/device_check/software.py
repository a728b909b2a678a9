"""Whether the driver, the build of torch and the GPU fit together, and what a report names besides the findings."""

from collections.abc import Iterator

import psutil
import torch

from rl_core.config.loading import load_config
from rl_core.device import computing_device, device_name
from rl_core.planning.gpu import driver_version, find_gpu
from rl_core.planning.machine_rules import unusable_gpu
from tasks.device_check.check import Figures, Finding, Setting, compared

_CHECK = "driver, CUDA and torch agree on the device"

_NOT_USED = "torch sees no GPU: look at what python -c 'import torch; torch.cuda.init()' says"
_NOT_PLANNED = "runs are planned for a CPU: put nvidia-smi on the PATH, and see that it lists the GPU"


def software_findings(setting: Setting) -> Iterator[Finding]:
    """Whether a training would compute on the device for which it is planned: the plan asks the driver, and the workers
    ask torch. Workers of a config that asks for the CPU compute there, whatever the two say."""
    asked = "auto" if setting.config is None else load_config(setting.config).cluster.device
    planned, device = find_gpu(asked), computing_device()
    problem = unusable_gpu(planned)
    build = f"torch {torch.__version__} is built for {f'CUDA {torch.version.cuda}' if torch.version.cuda else 'CPUs'}"
    driver = "nvidia-smi shows no GPU" if planned is None else f"nvidia-smi shows {planned.name}"
    first = "cluster.device: cpu asks for the CPU" if asked == "cpu" else driver
    agreed = f"{first}; {build}, and computes on {device_name(device)}"
    yield compared(
        _CHECK,
        holds=asked == "cpu" or (planned is not None) == (device.type == "cuda"),
        measured=problem.what if problem else agreed,
        advice=problem.fix if problem else _NOT_PLANNED if planned is None else _NOT_USED,
        figures=_facts(device),
    )


def _facts(device: torch.device) -> Figures:
    memory = psutil.virtual_memory()
    on_gpu = device.type == "cuda"
    free, total = torch.cuda.mem_get_info() if on_gpu else (memory.available, memory.total)
    return {
        "device": device_name(device),
        "gpus": torch.cuda.device_count() if on_gpu else 0,
        "free memory": f"{free / 2**30:.0f} of {total / 2**30:.0f} GiB",
        "threads": torch.get_num_threads(),
        "CUDA": torch.version.cuda or "none",
        "driver": driver_version() or "none",
    }
