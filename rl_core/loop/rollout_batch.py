"""Scored rollouts: the result of collecting, and the surplus that one step keeps for the next
(`online_filtering.surplus: keep`). A kept group is one step old when it is learned from: every rollout has the version
of the weights that sampled it and the generator's log-probs of that time, which are its old log-probs."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np

from rl_core.records.rollout_files import RolloutRecord, read_rollouts, write_rollouts
from rl_core.types import Group, Prompt, Rollout, RolloutKey, Score

FindPrompts = Callable[[Collection[str]], Mapping[str, Prompt]]
"""Prompts by their uids."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutBatch:
    """Groups and the scores of their rollouts."""

    groups: Sequence[Group] = ()
    scores: Mapping[RolloutKey, Score] = field(default_factory=dict)

    @classmethod
    def of(cls, groups: Sequence[Group], scores: Mapping[RolloutKey, Score]) -> "RolloutBatch":
        """The batch of these groups."""
        keys = [rollout.key for group in groups for rollout in group.rollouts]
        return cls(groups=groups, scores={key: scores[key] for key in keys})

    @property
    def num_rollouts(self) -> int:
        """In all groups."""
        return sum(len(group.rollouts) for group in self.groups)

    def __add__(self, other: "RolloutBatch") -> "RolloutBatch":
        return RolloutBatch(groups=[*self.groups, *other.groups], scores={**self.scores, **other.scores})

    def write(self, path: Path, *, step: int) -> None:
        """Write a rollout file, which `read_batch` reads equal to the bit."""
        write_rollouts(path, self.groups, self.scores, [], step=step)

    def in_order_of_keys(self) -> "RolloutBatch":
        """The same with the scores in the order of their keys, because a mean over them depends on it in its last
        digits."""
        return RolloutBatch(groups=self.groups, scores=dict(sorted(self.scores.items())))

    def without(self, prompts: Sequence[Prompt]) -> "RolloutBatch":
        """The groups whose prompt is not among `prompts`."""
        uids = {prompt.uid for prompt in prompts}
        return RolloutBatch.of([group for group in self.groups if group.prompt.uid not in uids], self.scores)


EMPTY: Final = RolloutBatch()


def read_batch(path: Path, find_prompts: FindPrompts) -> RolloutBatch:
    """Read the groups of a rollout file, equal to the bit. Raises KeyError if a prompt is no longer among the rows."""
    records = read_rollouts(path)
    prompts = find_prompts({record.prompt_uid for record in records})
    groups = [
        Group.of(prompts[uid], [_rollout(record) for record in group])
        for uid, group in groupby(records, key=lambda record: record.prompt_uid)
    ]
    scores = {
        (one.prompt_uid, one.sample_index): Score(components=one.components, parsed=one.parsed, error=one.error)
        for one in records
    }
    return RolloutBatch(groups=groups, scores=scores)


def _rollout(record: RolloutRecord) -> Rollout:
    return Rollout(
        prompt_uid=record.prompt_uid,
        sample_index=record.sample_index,
        response_ids=np.array(record.response_ids, dtype=np.int32),
        log_probs=np.array(record.log_probs, dtype=np.float32),
        text=record.response,
        finish_reason=record.finish_reason,
        policy_version=record.policy_version,
        insertions=record.insertions,
        environment=record.environment,
        opening=record.opening,
    )
