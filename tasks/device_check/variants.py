"""Checks of trainings: three steps with a resume, LoRA, offloading, weights that are spread over several devices."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from rl_core.config.training import Offload
from rl_core.files import remove_folder
from rl_core.loop.session import open_session
from rl_core.planning.model_sizes import read_sizes
from rl_core.planning.rules import model_problems
from rl_core.progress import SilentProgress
from rl_core.records.metrics_log import read
from rl_core.stop import StopRequest
from tasks.device_check.check import Finding, Setting, compared, not_checked
from tasks.device_check.trial import (
    LONGEST_RESPONSE,
    STEPS,
    Dtype,
    Trial,
    agreement,
    gradient_norms,
    made_groups,
    on_gpu,
    prepare_trial,
    sampled_once,
)


def training_findings(setting: Setting) -> Iterator[Finding]:
    """Whether three steps run, and whether the third one comes out the same after a resume."""
    trial = prepare_trial(setting, "float32")
    unbroken = _last_record(trial)
    gradient, gap = unbroken["actor/grad_norm"], unbroken["agreement/log_prob_gap_max"]
    yield compared(
        f"{STEPS} steps with validation and checkpoints",
        holds=math.isfinite(gradient) and gradient > 0.0,
        measured=f"last gradient norm {gradient:.3g}; log-probs of generator and trainer differ by at most {gap:.1e}",
        advice="the gradient is zero or not finite: compare the rows on attention",
    )
    _forget_the_last_step(trial)
    yield _resumed(unbroken, _last_record(trial))


def _last_record(trial: Trial) -> Mapping[str, Any]:
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
    pairs = {name: (unbroken[name], resumed[name]) for name in unbroken if unbroken[name] != resumed[name]}
    differing = {name: abs(one - other) / max(abs(one), abs(other)) for name, (one, other) in pairs.items()}
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


_LORA_STEPS: Final = 2

_SPREAD_BOUNDS: Final[dict[Dtype, float]] = {"float32": 1e-4, "bfloat16": 3e-2}
"""Largest difference of a gradient norm, as a share of it, between one device and several. A bfloat16 gradient of part
of a batch is rounded before it is added, one of the whole batch after it."""

_OFFLOAD_RATE: Final = 1e-4
"""A learning rate with which a lost optimizer step changes the next norm by 7 % or more. The order of a GPU's sums, or
the size of the micro-batches, changes it by a quarter of a percent, so a GPU is held to `_SPREAD_BOUNDS`."""


def lora_findings(setting: Setting, weights: str) -> Iterator[Finding]:
    """Whether two steps train adapters that the generator gets "merged" into its weights, or "separate"."""
    trial = prepare_trial(
        setting,
        "bfloat16",
        model={"lora": {"rank": 8, "alpha": 16.0, "generator_weights": weights}},
        algorithm={"kl": {"coef": 0.01}},
        actor={"optim": {"lr": 1e-3}},
        trainer={"max_steps": _LORA_STEPS, "save_freq": _LORA_STEPS},
    )
    check = f"LoRA, {weights} in the generator: {_LORA_STEPS} steps train and agree"
    sizes = read_sizes(trial.run.initial_model / "config.json")
    refused = [] if sizes is None else [*model_problems(trial.config, sizes, on_gpu=on_gpu())]
    if refused:
        yield not_checked(check, f"a plan refuses it: {refused[0]}")
        return
    last = _last_record(trial)
    norm, gap = last["actor/grad_norm"], last["agreement/log_prob_gap_mean"]
    yield compared(
        check,
        # A step whose log-probs disagree raises an error.
        holds=math.isfinite(norm) and norm > 0.0,
        measured=f"gradient norm {norm:.3g} in step {_LORA_STEPS}; log-probs differ by {gap:.1e} in the mean",
        advice="the gradient of the adapters is zero or not finite: set model.lora to null, and report it",
        figures={"grad_norm": norm, "mean": gap},
    )


def offload_findings(setting: Setting) -> Iterator[Finding]:
    """Whether each choice of `trainer.offload` gives the gradients of `none`."""
    trial = prepare_trial(
        setting,
        "bfloat16",
        algorithm={"kl": {"coef": 0.01}},
        actor={"optim": {"lr": _OFFLOAD_RATE}},
    )
    groups = made_groups(trial, LONGEST_RESPONSE)
    kept, *others = get_args(Offload)
    expected = gradient_norms(trial.with_sections(trainer={"offload": kept}), groups)
    for offload in others:
        norms = gradient_norms(trial.with_sections(trainer={"offload": offload}), groups)
        yield _equal_norms(
            f"trainer.offload: {offload} gives the numbers of none",
            norms,
            expected,
            bound=_SPREAD_BOUNDS["bfloat16"] if on_gpu() else 0.0,
            advice="set trainer.offload: none, and take smaller passes or model.gradient_checkpointing: true instead",
        )


def tensor_parallel_findings(setting: Setting) -> Iterator[Finding]:
    """Whether two devices that hold one generator agree with the trainer as one does."""
    trial = prepare_trial(setting, "float32", cluster={"devices": 2, "tensor_parallel_size": 2})
    with trial.workers() as workers:
        yield agreement("a generator of two devices agrees", workers, sampled_once(workers, trial), trial)


def sharding_findings(setting: Setting) -> Iterator[Finding]:
    """Whether weights that are spread over all devices have the gradients of one device, in each number format."""
    for dtype, bound in _SPREAD_BOUNDS.items():
        alone = prepare_trial(setting, dtype, name=dtype, model={"dtype": dtype})
        groups = made_groups(alone, LONGEST_RESPONSE)
        spread = alone.with_sections(cluster={"devices": setting.devices})
        yield _equal_norms(
            f"FSDP2 of {setting.devices} has the gradient norm of 1, in {dtype}",
            gradient_norms(spread, groups),
            gradient_norms(alone, groups),
            bound=bound,
            advice="the devices add up other numbers: try NCCL_P2P_DISABLE=1, then cluster.sharding: none",
        )


def _equal_norms(
    check: str, norms: Sequence[float], expected: Sequence[float], *, bound: float, advice: str
) -> Finding:
    """Whether two trainers have equal gradients in each of their steps."""
    largest = max(abs(one - other) / other for one, other in zip(norms, expected, strict=True))
    figures = {f"grad_norm_{step}": norm for step, norm in enumerate(norms, start=1)}
    figures |= {f"expected_grad_norm_{step}": norm for step, norm in enumerate(expected, start=1)}
    shown = " and ".join(f"{norm:.5g}" for norm in norms)
    return compared(
        check,
        holds=largest <= bound,
        measured=f"gradient norms {shown} differ by {largest:.1e} of their size (bound {bound:.0e})",
        advice=advice,
        figures=figures | {"largest_difference": largest},
    )
