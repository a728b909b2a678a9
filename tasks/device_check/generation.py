"""Checks of the generator: it agrees with the trainer, and gives the same responses after whatever happened to it."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch

from rl_core.config.tolerances import AGREEMENT
from rl_core.types import Group
from rl_core.workers.protocol import WorkerGroup, awake_generator
from tasks.device_check.check import Finding, Setting, compared, not_checked
from tasks.device_check.trial import (
    LONGEST_RESPONSE,
    RESPONSES,
    Dtype,
    Trial,
    agreement,
    agrees,
    gap_of,
    generated,
    on_gpu,
    prepare_trial,
    sampled_once,
    some_sampled,
)

_MOST_LEFT = 0.1
"""Share of the generator's memory that may stay taken while it sleeps."""


def agreement_findings(setting: Setting, dtype: Dtype) -> Iterator[Finding]:
    """Whether generator and trainer compute the same log-probs in a number format."""
    trial = prepare_trial(setting, dtype)
    with trial.workers() as workers:
        yield agreement(f"generator and trainer agree in {dtype}", workers, sampled_once(workers, trial), trial)


def sleep_findings(setting: Setting) -> Iterator[Finding]:
    """Whether a generator that sleeps gives its memory back, and after it the same responses."""
    trial = _trial(setting)
    with trial.workers() as workers:
        before = _free_bytes()
        with awake_generator(workers):
            first = some_sampled(workers, trial, trial.prompts, n=RESPONSES, max_tokens=LONGEST_RESPONSE)
            awake = _free_bytes()
        yield _memory(before=before, awake=awake, asleep=_free_bytes())
        yield _repeated("the generator sleeps and wakes", workers, trial, first)


def abort_findings(setting: Setting) -> Iterator[Finding]:
    """Whether the generator gives the same responses after a generation was left in its middle."""
    trial = _trial(setting)
    with trial.workers() as workers:
        first = sampled_once(workers, trial)
        with awake_generator(workers):
            begun = generated(workers, trial, trial.prompts, n=RESPONSES, max_tokens=LONGEST_RESPONSE)
            list(islice(begun, RESPONSES))
        yield _repeated("a generation is aborted", workers, trial, first)


def restart_findings(setting: Setting) -> Iterator[Finding]:
    """Whether a new generator gives the responses of the one before it."""
    trial = _trial(setting)
    with trial.workers() as workers:
        first = sampled_once(workers, trial)
    with trial.workers() as workers:
        yield _repeated("the generator ends and starts again", workers, trial, first)


def _trial(setting: Setting) -> Trial:
    return prepare_trial(setting, "float32")


def _repeated(event: str, workers: WorkerGroup, trial: Trial, first: list[Group]) -> Finding:
    """Whether the generator gives the responses `first` again, and still agrees with the trainer."""
    again = sampled_once(workers, trial)
    before, after = ([rollout for group in groups for rollout in group.rollouts] for groups in (first, again))
    pairs = [*zip(before, after, strict=True)]
    equal = [(one, other) for one, other in pairs if np.array_equal(one.response_ids, other.response_ids)]
    same, to_the_bit = len(equal), all(np.array_equal(one.log_probs, other.log_probs) for one, other in equal)
    gap, bounds = gap_of(workers, again), AGREEMENT[trial.config.model.dtype]
    is_exact = same == len(pairs) and to_the_bit
    return compared(
        f"{event}: the same responses again",
        # On a GPU the order of sums may differ between equal batches, so equal responses are not demanded there.
        holds=agrees(gap, bounds) and (is_exact or on_gpu()),
        measured=f"{same} of {len(pairs)} responses are equal, {'to the bit' if to_the_bit else 'up to rounding'}; "
        f"log-probs differ from the trainer's by {gap.mean:.1e}",
        advice="the generator's weights or caches are not what they were: report it with device.json",
        figures={"equal": same, "responses": len(pairs), "mean": gap.mean},
    )


def _free_bytes() -> int | None:
    """Free memory of the GPU, of all processes together; None on a CPU."""
    return torch.cuda.mem_get_info()[0] if on_gpu() else None


def _memory(*, before: int | None, awake: int | None, asleep: int | None) -> Finding:
    check = "a sleeping generator gives its memory back"
    if before is None or awake is None or asleep is None:
        return not_checked(check, "a CPU has no memory of its own")
    taken, left = before - awake, before - asleep
    return compared(
        check,
        holds=left <= _MOST_LEFT * taken,
        measured=f"awake it takes {taken / 2**30:.1f} GiB, asleep it keeps {left / 2**30:.1f} GiB",
        advice="the trainer gets less memory than planned: lower rollout.gpu_memory_utilization",
        figures={"awake_gib": taken / 2**30, "asleep_gib": left / 2**30},
    )
