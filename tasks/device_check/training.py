"""Checks of a training: three steps with validation and checkpoints, and a step that is repeated from a checkpoint."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rl_core.files import remove_folder
from rl_core.loop.session import open_session
from rl_core.progress import SilentProgress
from rl_core.records.metrics_log import read
from rl_core.stop import StopRequest
from tasks.device_check.check import Setting
from tasks.device_check.finding import Finding, compared
from tasks.device_check.trial import STEPS, Trial, on_gpu, prepare_trial


def training_findings(setting: Setting) -> Iterator[Finding]:
    """Whether three steps run, and whether the third one comes out the same after a resume."""
    trial = prepare_trial(setting.folder / "run", "float32")
    unbroken = last_record(trial)
    gradient, gap = unbroken["actor/grad_norm"], unbroken["agreement/log_prob_gap_max"]
    yield compared(
        f"{STEPS} steps with validation and checkpoints",
        holds=math.isfinite(gradient) and gradient > 0.0,
        measured=f"last gradient norm {gradient:.3g}; log-probs of generator and trainer differ by at most {gap:.1e}",
        advice="the gradient is zero or not finite: compare the rows on attention",
    )
    _forget_the_last_step(trial)
    yield _resumed(unbroken, last_record(trial))


def last_record(trial: Trial) -> Mapping[str, Any]:
    """Train on to the last step; its metrics."""
    with open_session(trial.config, trial.run, progress=SilentProgress(), stop=StopRequest()) as session:
        session.train_epoch(1)
    return list(read(trial.run.metrics))[-1]


def _forget_the_last_step(trial: Trial) -> None:
    """Leave the run as a kill in the last step would."""
    with open_session(trial.config, trial.run, progress=SilentProgress(), stop=StopRequest()) as session:
        newest = session.store.latest()
    assert newest is not None and newest.step == STEPS
    remove_folder(newest.folder)


def _resumed(unbroken: Mapping[str, Any], resumed: Mapping[str, Any]) -> Finding:
    check = "a step is repeated from its checkpoint"
    differing = {name: _relative(unbroken[name], resumed[name]) for name in unbroken if unbroken[name] != resumed[name]}
    if not differing:
        return Finding(check=check, verdict="ok", measured=f"all {len(unbroken)} metrics are equal to the bit")
    worst = max(differing, key=lambda name: differing[name])
    measured = f"{len(differing)} of {len(unbroken)} metrics differ, {worst} by {differing[worst]:.1e} of its size"
    if on_gpu():
        return Finding(check=check, verdict="measured", measured=measured)
    return Finding(
        check=check,
        verdict="fails",
        measured=measured,
        advice="equal runs must be equal to the bit on a CPU: report it with device.json",
    )


def _relative(one: float, other: float) -> float:
    return abs(one - other) / max(abs(one), abs(other))
