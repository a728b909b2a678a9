"""Every check of the device, in the order of the table."""

import logging
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rl_core.device import computing_device
from rl_core.planning.driver_rules import unusable_gpu
from rl_core.planning.gpu import driver_version, find_gpu
from tasks.device_check.attention import attention_findings, attention_forms
from tasks.device_check.finding import Finding
from tasks.device_check.generation import agreement_findings, generator_findings
from tasks.device_check.speed import speed_findings
from tasks.device_check.training import training_findings
from tasks.device_check.trial import prepare_trial

_logger = logging.getLogger(__name__)


def device_findings() -> Iterator[Finding]:
    """Check the device on which a training would run here, with a tiny model in a temporary folder.

    A check that breaks off is a finding that fails, and the next check is made.
    """
    device = computing_device()
    with tempfile.TemporaryDirectory(prefix="sightline-device-check-") as folder:
        parts: dict[str, Callable[[], Iterator[Finding]]] = {
            "driver and torch": driver_findings,
            "attention": partial(attention_findings, device, attention_forms(device)),
            "a model in float32": partial(_float32_findings, Path(folder, "float32")),
            "a model in bfloat16": partial(_bfloat16_findings, Path(folder, "bfloat16")),
            "speed": partial(speed_findings, device),
        }
        for part, findings in parts.items():
            yield from _contained(part, findings)


def driver_findings() -> Iterator[Finding]:
    """Whether torch computes on the GPU that the driver names; all other checks are of what torch computes on."""
    check, gpu = "torch computes on the driver's GPU", find_gpu()
    problem = unusable_gpu(gpu)
    if gpu is None:
        yield Finding(check=check, verdict="not applicable", measured="there is no NVIDIA GPU that may be used")
    elif problem is None:
        yield Finding(check=check, verdict="ok", measured=f"driver {driver_version()}")
    else:
        yield Finding(check=check, verdict="fails", measured=problem.what, advice=problem.fix)


def _float32_findings(folder: Path) -> Iterator[Finding]:
    trial = prepare_trial(folder, "float32")
    yield from agreement_findings(trial)
    yield from generator_findings(trial)
    yield from training_findings(trial)


def _bfloat16_findings(folder: Path) -> Iterator[Finding]:
    yield from agreement_findings(prepare_trial(folder, "bfloat16"))


def _contained(part: str, findings: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from findings()
    except Exception as error:  # whatever goes wrong on the device is what the check is there to show
        _logger.exception("the check of %s broke off", part)
        yield Finding(
            check=part,
            verdict="fails",
            measured=f"broke off: {type(error).__name__}: {error}",
            advice="the traceback is in the log above",
        )
