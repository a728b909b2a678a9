"""Checks of the update of the configured model, with short and with long responses: memory and speed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import torch

from rl_core.config.loading import load_config
from rl_core.environment import ALLOCATOR
from rl_core.planning.batches import WorkerShare
from rl_core.planning.memory_rows import GIB
from rl_core.planning.settings import changed
from rl_core.planning.step_time import ARITHMETIC, CardTime
from rl_core.timing import PhaseTimer
from rl_core.types import Group
from rl_core.workers.local_worker import LocalWorker
from rl_core.workers.protocol import awake_generator
from tasks.device_check.check import Finding, Setting, against_plan, not_checked, peak_against_plan
from tasks.device_check.checks import of_update
from tasks.device_check.geometry import Geometry, made_lengths, prepare_geometry
from tasks.device_check.speed import seconds_against_plan, speed_finding
from tasks.device_check.trial import learn_from, made_groups

_SHORT_SHARE: Final = 1 / 16
"""Length of a short response, as a share of the longest."""

_PINNED: Final = ("optimizer state", "reference weights", "critic's weights")
"""The rows of the forecast of the host's memory that are pinned."""


def update_findings(setting: Setting, kind: str) -> Iterator[Finding]:
    """An update with responses as long as they may be ("long"); or short, so that a pass has more prompts."""
    memory, pinned, speed = of_update(kind)
    assert setting.config is not None, "a check of the configured model without a config"
    longest = load_config(setting.config).rollout.max_response_length
    length = longest if kind == "long" else max(2, int(_SHORT_SHARE * longest))
    trial = prepare_geometry(setting, response=length)
    groups = made_groups(trial, length)
    with trial.workers() as workers:
        with awake_generator(workers):
            pass  # a run's generator sleeps during the update, and keeps what sleep does not free
        workers.usage()  # forgets the peaks of loading
        learn_from(workers, trial, groups)
        timer = PhaseTimer()
        learn_from(workers, trial, groups, timer=timer)
        peaks = workers.usage().together
        yield peak_against_plan(memory, "update", peaks=peaks, forecast=trial.forecast)
        yield _pinned(pinned, trial, is_here=isinstance(workers, LocalWorker))
    yield _speed(speed, trial, groups, timer.seconds)


def _pinned(check: str, trial: Geometry, *, is_here: bool) -> Finding:
    """Pinned memory of this process, whose blocks the driver never gives to another one."""
    planned = sum(row.num_bytes for row in trial.forecast.host_rows if row.name in _PINNED)
    if trial.gpu is None:
        return not_checked(check, "a CPU has one memory")
    if not is_here:
        return not_checked(check, "it is in the processes of several workers")
    pinned = torch.cuda.host_memory_stats()["allocated_bytes.peak"]
    if not planned:
        measured = f"{pinned / GIB:.2f} GiB, and none of note is planned (trainer.offload: none)"
        return Finding(check=check, verdict="measured", measured=measured, figures={"bytes": pinned})
    return against_plan(
        check,
        pinned / GIB,
        planned / GIB,
        advice="more of the machine's memory is taken than planned: unset PYTORCH_ALLOC_CONF, or set it to "
        f"{ALLOCATOR['PYTORCH_ALLOC_CONF']}; or set trainer.offload: none",
    )


def _speed(check: str, trial: Geometry, groups: Sequence[Group], seconds: Mapping[str, float]) -> Finding:
    """Tree tokens a second, their share of the card's arithmetic (MFU), and the plan's seconds. What is computed again
    for `model.gradient_checkpointing` does not count (Chowdhery et al. 2022, appendix B)."""
    tokens = sum(len(group.prompt.token_ids) + sum(len(r.response_ids) for r in group.rollouts) for group in groups)
    rate = tokens / seconds["forward_backward"]
    shown, figures = f"{rate:,.0f} tree tokens/s", {"tokens_per_second": rate}
    card = trial.card
    if card is None:
        return Finding(check=check, verdict="measured", measured=shown, figures=figures)
    of_learner = len(groups) / WorkerShare.of(trial.config).learners
    planned = CardTime(config=trial.config, sizes=trial.sizes, card=card, lengths=made_lengths(groups))
    once = replace(planned, config=changed(trial.config, "model.gradient_checkpointing", False))
    utilisation = once.passes(of_learner) * ARITHMETIC / seconds["forward_backward"]
    taken = seconds["forward_backward"] + seconds.get("optimizer", 0.0)
    planned_seconds = planned.passes(of_learner) + planned.optimizer()
    compared, advice = seconds_against_plan(taken, planned_seconds)
    return speed_finding(
        check,
        f"{shown}, MFU {utilisation:.0%}; {compared}",
        rate=utilisation,
        most=1.0,
        figures=figures | {"mfu": utilisation, "seconds": taken, "planned_seconds": planned_seconds},
        advice=advice,
    )
