"""Scores rollouts during generation: each one is submitted to the reward pool as soon as it is finished."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future

from rl_core.rewards.pool import RewardPool
from rl_core.rewards.sample import RewardSample
from rl_core.types import Prompt, Rollout, RolloutKey, Score


class TooManyFailedRewards(RuntimeError):
    """More rewards failed than `reward.max_failed_share` allows; the message has the first reasons."""


class StepScores:
    """The scores of one step, by (prompt uid, sample index)."""

    def __init__(self, pool: RewardPool, prompts: Sequence[Prompt]) -> None:
        self._pool = pool
        self._prompts = {prompt.uid: prompt for prompt in prompts}
        self._pending: dict[RolloutKey, Future[Score]] = {}

    def watch(self, rollouts: Iterable[Rollout]) -> list[Rollout]:
        """Collect rollouts, and submit each for its reward as soon as it comes."""
        collected = []
        for rollout in rollouts:
            sample = RewardSample.of(self._prompts[rollout.prompt_uid], rollout)
            self._pending[rollout.key] = self._pool.submit(sample)
            collected.append(rollout)
        self._pool.flush()
        return collected

    def wait(self) -> dict[RolloutKey, Score]:
        """Wait for all scores; failed ones have the reason."""
        return {key: future.result() for key, future in sorted(self._pending.items())}


def check_failed_share(scores: Mapping[RolloutKey, Score], *, max_failed_share: float) -> None:
    """Raises TooManyFailedRewards if the reward failed for more than `max_failed_share` of the samples."""
    errors = [f"{uid} sample {index}: {score.error}" for (uid, index), score in scores.items() if score.error]
    if len(errors) > max_failed_share * len(scores):
        first = "\n  ".join(errors[:5])
        raise TooManyFailedRewards(
            f"{len(errors)} of {len(scores)} rewards failed, more than reward.max_failed_share = {max_failed_share}; "
            f"fix the reward function, then start the run again to continue. First reasons:\n  {first}"
        )
