"""Small values for tests: prompts, rollouts and groups with ids made up from a seed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rl_core.types import Float32Array, Group, Int32Array, Prompt, Rollout, TrainGroup, TrainSample

Made = TypeVar("Made", Group, TrainGroup)


def make_prompt(uid: str = "p0", *, length: int = 4) -> Prompt:
    ids = np.arange(length, dtype=np.int32)
    return Prompt(uid=uid, data_source="test", question="?", text="?", answer="1", token_ids=ids, engine_token_ids=ids)


def make_rollout(uid: str = "p0", index: int = 0, *, length: int = 3, version: int = 0) -> Rollout:
    return Rollout(
        prompt_uid=uid,
        sample_index=index,
        response_ids=np.arange(length, dtype=np.int32),
        log_probs=np.full(length, -0.5, dtype=np.float32),
        text="1",
        finish_reason="stop",
        policy_version=version,
    )


def made_up_rollout(uid: str, index: int, ids: Int32Array, log_probs: Float32Array, *, version: int = 0) -> Rollout:
    """A rollout of these tokens, without a text."""
    return replace(make_rollout(uid, index, version=version), response_ids=ids, log_probs=log_probs, text="")


def facts_of(rollout: Rollout) -> tuple[object, ...]:
    """All of it, as values that are equal where every bit is."""
    return (
        rollout.key,
        (rollout.response_ids.dtype, rollout.response_ids.tobytes()),
        (rollout.log_probs.dtype, rollout.log_probs.tobytes()),
        rollout.text,
        rollout.finish_reason,
        rollout.policy_version,
    )


def make_group(uid: str = "p0", *, lengths: tuple[int, ...] = (3, 1), prompt_length: int = 4) -> Group:
    rollouts = [make_rollout(uid, i, length=length) for i, length in enumerate(lengths)]
    return Group(prompt=make_prompt(uid, length=prompt_length), rollouts=rollouts)


def make_train_group(uid: str = "p0", *, lengths: tuple[int, ...] = (3, 1), prompt_length: int = 4) -> TrainGroup:
    group = make_group(uid, lengths=lengths, prompt_length=prompt_length)
    samples = [
        TrainSample(
            rollout=rollout,
            advantages=np.ones(len(rollout.response_ids), dtype=np.float32),
            old_log_probs=rollout.log_probs,
        )
        for rollout in group.rollouts
    ]
    return TrainGroup(prompt=group.prompt, samples=samples)


def drawn_groups(
    make: Callable[..., Made], *, prompt: int, response: int, samples: int, least: int, most: int
) -> SearchStrategy[list[Made]]:
    """From `least` to `most` groups that `make` makes; the other numbers are the largest, the smallest are 1."""
    lengths = st.lists(st.integers(1, response), min_size=1, max_size=samples).map(tuple)
    specs = st.lists(st.tuples(st.integers(1, prompt), lengths), min_size=least, max_size=most)
    return specs.map(lambda drawn: [make(f"p{i}", lengths=n, prompt_length=p) for i, (p, n) in enumerate(drawn)])


def groups_of(train_groups: Sequence[TrainGroup]) -> list[Group]:
    """The same groups before they were given advantages."""
    return [Group(prompt=group.prompt, rollouts=group.rollouts) for group in train_groups]
