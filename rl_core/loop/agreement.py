"""The comparison of generator and trainer where a step learns from rollouts of earlier weights."""

from collections.abc import Sequence

import numpy as np

from rl_core.config.run import RunConfig
from rl_core.config.tolerances import COMPARED_GROUPS, agreement_bounds
from rl_core.timing import PhaseTimer
from rl_core.training.agreement import AgreementMeter, LogProbGap
from rl_core.types import Group
from rl_core.workers.protocol import WorkerGroup


def compare_with_generator(
    groups: Sequence[Group], *, config: RunConfig, workers: WorkerGroup, timer: PhaseTimer
) -> LogProbGap:
    """Have the trainer compute the log-probs of the first groups that its present weights have sampled, and compare
    them with the generator's.

    Args:
        groups: Groups that were sampled with the trainer's weights.
        config: The run.
        workers: Hold the policy; their generator must sleep.
        timer: Measures `agreement`.

    Raises:
        AgreementError: the log-probs break one of the bounds in section `rollout`, or none could be compared.
    """
    meter = AgreementMeter(workers.policy_version, keeps_surplus=False)
    compared = groups[:COMPARED_GROUPS]
    with timer.phase("agreement"):
        (found,) = workers.compute("old_log_probs", [compared])
    for group, log_probs in zip(compared, found, strict=True):
        meter.add(group.rollouts, np.concatenate(log_probs))
    meter.check(agreement_bounds(config))
    return meter.gap()
