"""Splits groups into micro-batches by a budget of tree tokens (docs/architecture.md, "Ragged, never padded")."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from rl_core.models.packing import TreeInput
from rl_core.types import Group, TrainGroup

Item = TypeVar("Item")
AnyGroup = TypeVar("AnyGroup", Group, TrainGroup)


def fill_batches(items: Iterable[Item], *, size: Callable[[Item], int], token_budget: int) -> list[list[Item]]:
    """Put items, in their order, into batches of at most `token_budget` tokens. A larger item gets its own batch."""
    batches: list[list[Item]] = []
    room = 0
    for item in items:
        tokens = size(item)
        if not batches or tokens > room:
            batches.append([])
            room = token_budget
        batches[-1].append(item)
        room -= tokens
    return batches


def split_tree(prompt_tokens: int, response_lengths: Sequence[int], *, token_budget: int) -> list[slice]:
    """Which responses, in their order, share a tree: all of them if the budget allows it, else as many as fit. Every
    tree repeats the prompt. A prompt with a single response may exceed the budget."""
    parts: list[slice] = []
    begin, room = 0, token_budget - prompt_tokens
    for place, length in enumerate(response_lengths):
        if place > begin and length > room:
            parts.append(slice(begin, place))
            begin, room = place, token_budget - prompt_tokens
        room -= length
    return [*parts, slice(begin, len(response_lengths))]


def tree_tokens(group: Group | TrainGroup) -> int:
    """Tokens of the group's tree: the prompt once, and all responses with their insertions."""
    return len(group.prompt.token_ids) + sum(rollout.num_tokens for rollout in group.rollouts)


def response_tokens(groups: Iterable[Group | TrainGroup]) -> int:
    """Sampled tokens of all responses, which a pass computes something at."""
    return sum(len(rollout.response_ids) for group in groups for rollout in group.rollouts)


def trees_of(groups: Sequence[Group | TrainGroup]) -> list[TreeInput]:
    """What `pack_trees` takes."""
    return [
        TreeInput(
            prompt=group.prompt,
            responses=[rollout.response_ids for rollout in group.rollouts],
            insertions=[rollout.insertions for rollout in group.rollouts],
        )
        for group in groups
    ]


def split_into_microbatches(groups: Sequence[AnyGroup], *, token_budget: int) -> list[list[AnyGroup]]:
    """Pack groups greedily into few micro-batches of at most `token_budget` tree tokens. A larger group is split, and
    every part repeats the prompt; a single response may exceed the budget. Trees of similar size go together, because
    padding inside the attention call grows with their difference. The order depends on the groups alone."""
    parts = [part for group in groups for part in _split_group(group, token_budget)]
    parts.sort(key=tree_tokens, reverse=True)
    return fill_batches(parts, size=tree_tokens, token_budget=token_budget)


def _split_group(group: AnyGroup, token_budget: int) -> Iterator[AnyGroup]:
    lengths = [rollout.num_tokens for rollout in group.rollouts]
    for part in split_tree(len(group.prompt.token_ids), lengths, token_budget=token_budget):
        yield group.part(part)
