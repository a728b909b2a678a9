"""What checks of generators share: the groups of a step, and how far generator and trainer differ on them."""

import numpy as np

from rl_core.config.tolerances import AGREEMENT, AgreementBounds
from rl_core.rollout.requests import collect_groups, requests_for
from rl_core.training.agreement import LogProbGap, broken_bounds, log_prob_gap
from rl_core.types import GenerationRequest, Group, Prompt, Sampling
from rl_core.workers.protocol import WorkerGroup, awake_generator
from tasks.device_check.check import Finding, compared
from tasks.device_check.trial import Trial

AGREEMENT_ADVICE = (
    "a kernel of the generator or of the trainer computes another number: compare the rows on attention and matrix "
    "products; algorithm.old_log_probs: recompute with a correction trains in spite of it"
)


def requests_of(trial: Trial) -> list[GenerationRequest]:
    """The requests of one step, the same in every call."""
    return requests_for(trial.prompts, trial.config.rollout.n, run_seed=trial.config.seed, step=1)


def sampling_of(trial: Trial, *, max_tokens: int | None = None) -> Sampling:
    """How training samples, with responses as long as the run's or shorter."""
    rollout = trial.config.rollout
    return Sampling(temperature=rollout.temperature, max_tokens=max_tokens or rollout.max_response_length)


def sampled(workers: WorkerGroup, trial: Trial) -> list[Group]:
    """One step's groups, from an awake generator."""
    return collect_groups(
        trial.prompts, workers.generate(requests_of(trial), sampling_of(trial)), trial.config.rollout.n
    )


def sampled_once(workers: WorkerGroup, trial: Trial) -> list[Group]:
    """One step's groups, from a generator that is woken for them."""
    with awake_generator(workers):
        return sampled(workers, trial)


def some_sampled(workers: WorkerGroup, trial: Trial, prompts: list[Prompt], *, n: int, max_tokens: int) -> list[Group]:
    """n responses of up to `max_tokens` tokens to these prompts, from an awake generator."""
    requests = requests_for(prompts, n, run_seed=trial.config.seed, step=1)
    return collect_groups(prompts, workers.generate(requests, sampling_of(trial, max_tokens=max_tokens)), n)


def gap_of(workers: WorkerGroup, groups: list[Group]) -> LogProbGap:
    """How far the log-probs of generator and trainer differ."""
    (trained,) = workers.compute("old_log_probs", [groups])
    generator = [rollout.log_probs for group in groups for rollout in group.rollouts]
    return log_prob_gap(np.concatenate(generator), np.concatenate([one for group in trained for one in group]))


def agrees(gap: LogProbGap, bounds: AgreementBounds) -> bool:
    """Whether the difference is one of rounding."""
    return not any(broken_bounds(gap, bounds))


def agreement(check: str, workers: WorkerGroup, groups: list[Group], trial: Trial) -> Finding:
    """Whether the generator's log-probs of these groups are the trainer's."""
    gap, bounds = gap_of(workers, groups), AGREEMENT[trial.config.model.dtype]
    return compared(
        check,
        holds=agrees(gap, bounds),
        measured=f"{gap.count} log-probs differ by {gap.mean:.1e} in the mean (bound {bounds.mean:.0e}), at the 99.9th "
        f"percentile by {gap.percentile:.1e} (bound {bounds.percentile:.0e})",
        advice=AGREEMENT_ADVICE,
        figures={"tokens": gap.count, "mean": gap.mean, "percentile": gap.percentile, "largest": gap.largest},
    )
