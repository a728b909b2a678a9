"""One Parquet file for each step, with all its rollouts: prompt, response, reward and advantages.

The bytes depend on the rollouts alone (no clock, no host name), so a resumed run writes the same files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rl_core.files import atomic_write_bytes
from rl_core.types import FinishReason, Group, Prompt, Rollout, RolloutKey, Score, TrainGroup, TrainSample

_SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("prompt_uid", pa.string()),
        ("data_source", pa.string()),
        ("prompt", pa.string()),
        ("question", pa.string()),
        ("answer", pa.string()),
        ("image_uids", pa.list_(pa.string())),
        ("sample_index", pa.int32()),
        ("response", pa.string()),
        ("response_ids", pa.list_(pa.int32())),
        ("log_probs", pa.list_(pa.float32())),
        ("finish_reason", pa.string()),
        ("policy_version", pa.int64()),
        ("components", pa.map_(pa.string(), pa.float64())),
        ("parsed", pa.string()),
        ("error", pa.string()),
        ("advantages", pa.list_(pa.float32())),
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutRecord:
    """A row of a step's file: one rollout.

    Attributes:
        step: The training step, from 1.
        prompt_uid: Identity of the prompt.
        data_source: Name of the source that the row came from.
        prompt: The rendered chat prompt.
        question: The user's text, before the prompt template is applied.
        answer: The ground truth.
        image_uids: The uids of the images, in order, then the uids of the frames of videos.
        sample_index: Index of the rollout in its group.
        response: The decoded response.
        response_ids: [R] token ids.
        log_probs: [R] log-probs of the generator, float32.
        finish_reason: "stop" or "length".
        policy_version: Version of the weights that sampled it. It is lower than in other groups where the group was
            kept from the step before (`online_filtering.surplus`); the file of that step has the group too.
        components: The components of the reward, `overall` among them; empty when the reward failed.
        parsed: The answer that the reward read from the response; None where it read none.
        error: Why there is no score; None where there is one.
        advantages: [R] advantage of each token, float32; None for a rollout that was not trained on.
    """

    step: int
    prompt_uid: str
    data_source: str
    prompt: str
    question: str
    answer: str
    image_uids: list[str]
    sample_index: int
    response: str
    response_ids: list[int]
    log_probs: list[float]
    finish_reason: FinishReason
    policy_version: int
    components: dict[str, float]
    parsed: str | None
    error: str | None
    advantages: list[float] | None

    @property
    def advantage(self) -> float | None:
        """Mean advantage of a token; None for a rollout that was not trained on."""
        return None if self.advantages is None else sum(self.advantages) / len(self.advantages)


def write_rollouts(
    path: Path,
    groups: Sequence[Group],
    scores: Mapping[RolloutKey, Score],
    trained: Sequence[TrainGroup],
    *,
    step: int,
) -> None:
    """Write a step's file, whole or not at all.

    Args:
        path: The file (`RunDirectory.rollouts(step)`).
        groups: All groups that were sampled, in the order of the loader.
        scores: The score of every rollout.
        trained: The groups that were trained on; a rollout that is not in them has no advantage.
        step: The training step.

    Raises:
        KeyError: a rollout has no score.
        OSError: the disk is full; an earlier file of that name is intact.
    """
    samples = {sample.rollout.key: sample for group in trained for sample in group.samples}
    records = [
        asdict(_record(step, group.prompt, rollout, scores[rollout.key], samples.get(rollout.key)))
        for group in groups
        for rollout in group.rollouts
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(records, schema=_SCHEMA), sink, compression="zstd")
    atomic_write_bytes(path, sink.getvalue().to_pybytes())


def read_rollouts(path: Path) -> list[RolloutRecord]:
    """Read the rollouts of a step's file, in the order in which they were written."""
    rows: list[dict[str, Any]] = pq.read_table(path, schema=_SCHEMA, partitioning=None).to_pylist()
    return [RolloutRecord(**row | {"components": dict(row["components"])}) for row in rows]


def _record(step: int, prompt: Prompt, rollout: Rollout, score: Score, sample: TrainSample | None) -> RolloutRecord:
    return RolloutRecord(
        step=step,
        prompt_uid=prompt.uid,
        data_source=prompt.data_source,
        prompt=prompt.text,
        question=prompt.question,
        answer=prompt.answer_text,
        image_uids=list(prompt.shown_uids),
        sample_index=rollout.sample_index,
        response=rollout.text,
        response_ids=rollout.response_ids.tolist(),
        log_probs=rollout.log_probs.tolist(),
        finish_reason=rollout.finish_reason,
        policy_version=rollout.policy_version,
        components=dict(sorted(score.components.items())),
        parsed=score.parsed,
        error=score.error,
        advantages=None if sample is None or not sample.in_loss else sample.advantages.tolist(),
    )
