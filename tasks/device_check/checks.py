"""Every check of the device, in the order of the table."""

import logging
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rl_core.device import computing_device
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
        for part, findings in {
            "attention": partial(attention_findings, device, attention_forms(device)),
            "a model in float32": partial(_float32_findings, Path(folder, "float32")),
            "a model in bfloat16": partial(_bfloat16_findings, Path(folder, "bfloat16")),
            "speed": partial(speed_findings, device),
        }.items():
            yield from _contained(part, findings)


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
