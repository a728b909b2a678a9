"""One Parquet file for each step, with all its rollouts; its bytes depend on these alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from rl_core.files import atomic_write_bytes
from rl_core.image_sizes import ImageSizes
from rl_core.rewards.sample import turns_of
from rl_core.types import (
    EnvironmentOpening,
    FinishReason,
    Group,
    Insertion,
    Prompt,
    Rollout,
    RolloutKey,
    Score,
    ToolCall,
    TrainGroup,
)

_CALL = pa.struct([(field.name, pa.string()) for field in fields(ToolCall)])
_INSERTION = pa.struct(
    [
        ("after", pa.int32()),
        ("token_ids", pa.list_(pa.int32())),
        ("engine_token_ids", pa.list_(pa.int32())),
        ("turn", pa.string()),
        ("image_uids", pa.list_(pa.string())),
        ("calls", pa.list_(_CALL)),
    ]
)
_SIZES = pa.struct([(name, pa.list_(pa.int32())) for name in ImageSizes._fields])
_OPENING = pa.struct(
    [
        ("text", pa.string()),
        *((name, pa.list_(pa.int32())) for name in ("token_ids", "engine_token_ids")),
        *((name, pa.int32()) for name in ("tail_letters", "tail_tokens")),
        ("image_uids", pa.list_(pa.string())),
        ("image_sizes", pa.list_(_SIZES)),
        ("call", _CALL),
    ]
)
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
        ("insertions", pa.list_(_INSERTION)),
        ("environment", pa.map_(pa.string(), pa.float64())),
        ("opening", _OPENING),
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutRecord:
    """A row of a step's file: one rollout.

    Attributes:
        prompt: The rendered chat prompt.
        question: The user's text, before the prompt template is applied.
        image_uids: The uids of the images, in order, then of the frames of videos.
        response_ids, log_probs: [R] token ids, and log-probs of the generator, float32.
        policy_version: Version of the weights that sampled it: lower than in other groups where the group was kept from
            the step before, whose file has it too.
        components: `overall` among them; empty when the reward failed.
        parsed: The answer that the reward read from the response.
        error: Why there is no score.
        advantages: [R] advantage of each token, float32; None for a rollout that was not trained on.
        insertions: What tools or an environment have put between the model's turns.
        environment: The numbers that the environment gave at the end.
        opening: What the environment showed at the end of the prompt.
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
    insertions: tuple[Insertion, ...]
    environment: dict[str, float]
    opening: EnvironmentOpening | None

    @property
    def turns(self) -> tuple[Mapping[str, Any], ...]:
        """The turns as a reward gets them; of a response with a single turn none, as an `EvaluationItem` has none."""
        if not self.insertions and self.opening is None:
            return ()
        return tuple(turns_of(self.insertions, self.response, opening=self.opening))

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
    """Write a step's file, whole or not at all: `groups` are all that were sampled, in the order of the loader; those
    in `trained` have advantages."""
    sampled = [(group.prompt, rollout) for group in groups for rollout in group.rollouts]
    in_loss = (sample for group in trained for sample in group.samples if sample.in_loss)
    advantages = {sample.rollout.key: sample.advantages for sample in in_loss}
    columns = {
        "step": [step] * len(sampled),
        **_prompt_columns([prompt for prompt, _ in sampled]),
        **_rollout_columns([rollout for _, rollout in sampled]),
        **_score_columns([scores[rollout.key] for _, rollout in sampled]),
        "advantages": _token_lists([advantages.get(rollout.key) for _, rollout in sampled], np.float32),
    }
    of_tools: dict[str, list[Any]] = {
        "insertions": [[put.as_record() for put in rollout.insertions] for _, rollout in sampled],
        "environment": [dict(rollout.environment) for _, rollout in sampled],
        "opening": [prompt.opening and prompt.opening.as_record() for prompt, _ in sampled],
    }
    schema = _SCHEMA
    for name, values in of_tools.items():
        if any(values):
            columns[name] = values
        else:  # a run without tools, or without an environment, has no column for them
            schema = schema.remove(schema.get_field_index(name))
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pydict(columns, schema=schema)
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    atomic_write_bytes(path, sink.getvalue())


def read_rollouts(path: Path) -> list[RolloutRecord]:
    """The rollouts of a step's file, in their order. Raises OSError or pyarrow.ArrowInvalid if the file is damaged."""
    table = pq.read_table(path, schema=_SCHEMA, partitioning=None, page_checksum_verification=True)
    rows: list[dict[str, Any]] = table.to_pylist()
    return [
        RolloutRecord(
            **row
            | {
                "components": dict(row["components"]),
                "insertions": tuple(Insertion.of_record(put) for put in row["insertions"] or ()),
                "environment": dict(row["environment"] or ()),
                "opening": EnvironmentOpening.of_record(row["opening"]),
            }
        )
        for row in rows
    ]


def _prompt_columns(prompts: Sequence[Prompt]) -> dict[str, Any]:
    return {
        "prompt_uid": [prompt.uid for prompt in prompts],
        "data_source": [prompt.data_source for prompt in prompts],
        "prompt": [prompt.text for prompt in prompts],
        "question": [prompt.question for prompt in prompts],
        "answer": [prompt.answer_text for prompt in prompts],
        "image_uids": [prompt.shown_uids for prompt in prompts],
    }


def _rollout_columns(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    return {
        "sample_index": [rollout.sample_index for rollout in rollouts],
        "response": [rollout.text for rollout in rollouts],
        "response_ids": _token_lists([rollout.response_ids for rollout in rollouts], np.int32),
        "log_probs": _token_lists([rollout.log_probs for rollout in rollouts], np.float32),
        "finish_reason": [rollout.finish_reason for rollout in rollouts],
        "policy_version": [rollout.policy_version for rollout in rollouts],
    }


def _score_columns(scores: Sequence[Score]) -> dict[str, Any]:
    return {
        "components": [sorted(score.components.items()) for score in scores],
        "parsed": [score.parsed for score in scores],
        "error": [score.error for score in scores],
    }


def _token_lists(
    rows: Sequence[npt.NDArray[np.generic] | None], dtype: type[np.int32] | type[np.float32]
) -> pa.ListArray:
    """A list for each row, and no list where the row is None. The numbers are copied as arrays, because a step of a
    large model has millions of tokens, and each would become a Python object."""
    present = [np.empty(0, dtype), *(row for row in rows if row is not None)]
    ends = accumulate((0 if row is None else len(row) for row in rows), initial=0)
    return pa.ListArray.from_arrays(
        pa.array(ends, pa.int32()),
        pa.array(np.concatenate(present).astype(dtype, copy=False)),
        mask=pa.array([row is None for row in rows], pa.bool_()),
    )
