"""Checks of the generator: it agrees with the trainer, and gives the same responses after whatever happened to it."""

from collections.abc import Iterator
from itertools import islice

import numpy as np
import torch

from rl_core.config.tolerances import AGREEMENT, AgreementBounds
from rl_core.rollout.requests import collect_groups, requests_for
from rl_core.training.agreement import LogProbGap, log_prob_gap
from rl_core.types import GenerationRequest, Group, Rollout, Sampling
from rl_core.workers.protocol import WorkerGroup, awake_generator
from tasks.device_check.finding import Finding, compared
from tasks.device_check.trial import LONGEST_RESPONSE, RESPONSES, Trial, on_gpu

_SAMPLING = Sampling(temperature=1.0, max_tokens=LONGEST_RESPONSE)
_MOST_LEFT = 0.1
"""Share of the generator's memory that may stay taken while it sleeps."""


def agreement_findings(trial: Trial) -> Iterator[Finding]:
    """Whether generator and trainer compute the same log-probs in the trial's number format."""
    with trial.workers() as workers:
        yield _agreement(f"generator and trainer agree in {trial.config.model.dtype}", workers, trial)


def generator_findings(trial: Trial) -> Iterator[Finding]:
    """Whether the generator gives the same responses again after sleep, an aborted generation and a new start."""
    with trial.workers() as workers:
        before = _free_bytes()
        with awake_generator(workers):
            first = _sampled(workers, trial)
            awake = _free_bytes()
        yield _memory(before=before, awake=awake, asleep=_free_bytes())
        yield _repeated("the generator sleeps and wakes", workers, trial, first)
        with awake_generator(workers):
            list(islice(workers.generate(_requests(trial), _SAMPLING), RESPONSES))
        yield _repeated("a generation is aborted", workers, trial, first)
    with trial.workers() as workers:
        yield _repeated("the generator ends and starts again", workers, trial, first)


def _requests(trial: Trial) -> list[GenerationRequest]:
    return requests_for(trial.prompts, RESPONSES, run_seed=trial.config.seed, step=1)


def _sampled(workers: WorkerGroup, trial: Trial) -> list[Group]:
    """One step's groups, from an awake generator."""
    return collect_groups(trial.prompts, workers.generate(_requests(trial), _SAMPLING), RESPONSES)


def _agreement(check: str, workers: WorkerGroup, trial: Trial) -> Finding:
    with awake_generator(workers):
        groups = _sampled(workers, trial)
    gap = _gap(workers, groups)
    bounds = AGREEMENT[trial.config.model.dtype]
    return compared(
        check,
        holds=_agrees(gap, bounds),
        measured=f"log-probs of {gap.count} tokens differ by {gap.mean:.1e} in the mean (bound {bounds.mean:.0e}), by "
        f"{gap.percentile:.1e} at the 99.9th percentile (bound {bounds.percentile:.0e}), by {gap.largest:.1e} at most",
        advice="a kernel of the generator or of the trainer computes another number: compare the rows on attention and "
        "matrix products; algorithm.old_log_probs: recompute with a correction trains in spite of it",
    )


def _gap(workers: WorkerGroup, groups: list[Group]) -> LogProbGap:
    (trained,) = workers.old_log_probs([groups])
    generator = [rollout.log_probs for group in groups for rollout in group.rollouts]
    return log_prob_gap(np.concatenate(generator), np.concatenate([one for group in trained for one in group]))


def _agrees(gap: LogProbGap, bounds: AgreementBounds) -> bool:
    return gap.percentile <= bounds.percentile and gap.mean <= bounds.mean


def _repeated(event: str, workers: WorkerGroup, trial: Trial, first: list[Group]) -> Finding:
    """Whether the generator gives the responses `first` again, and still agrees with the trainer."""
    with awake_generator(workers):
        again = _sampled(workers, trial)
    pairs = [(one, other) for a, b in zip(first, again, strict=True) for one, other in _pairs(a, b)]
    same = sum(np.array_equal(one.response_ids, other.response_ids) for one, other in pairs)
    to_the_bit = all(np.array_equal(one.log_probs, other.log_probs) for one, other in pairs if _same_ids(one, other))
    gap, bounds = _gap(workers, again), AGREEMENT[trial.config.model.dtype]
    is_exact = same == len(pairs) and to_the_bit
    return compared(
        f"{event}: the same responses again",
        # On a GPU the order of sums may differ between equal batches, so equal responses are not demanded there.
        holds=_agrees(gap, bounds) and (is_exact or on_gpu()),
        measured=f"{same} of {len(pairs)} responses are equal, log-probs of equal ones "
        f"{'to the bit' if to_the_bit else 'up to rounding'}; they differ from the trainer's by {gap.mean:.1e}",
        advice="the generator's weights or caches are not what they were: report it with the versions below",
    )


def _pairs(one: Group, other: Group) -> Iterator[tuple[Rollout, Rollout]]:
    yield from zip(one.rollouts, other.rollouts, strict=True)


def _same_ids(one: Rollout, other: Rollout) -> bool:
    return np.array_equal(one.response_ids, other.response_ids)


def _free_bytes() -> int | None:
    """Free memory of the GPU, of all processes together; None on a CPU."""
    return torch.cuda.mem_get_info()[0] if on_gpu() else None


def _memory(*, before: int | None, awake: int | None, asleep: int | None) -> Finding:
    check = "a sleeping generator gives its memory back"
    if before is None or awake is None or asleep is None:
        return Finding(check=check, verdict="not applicable", measured="a CPU has no memory of its own")
    taken, left = before - awake, before - asleep
    return compared(
        check,
        holds=left <= _MOST_LEFT * taken,
        measured=f"awake it takes {taken / 2**30:.1f} GiB, asleep it keeps {left / 2**30:.1f} GiB",
        advice="the trainer gets less memory than planned: lower rollout.gpu_memory_utilization",
    )
