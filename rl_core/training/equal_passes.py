"""Equal numbers of passes on all ranks.

Each pass of a sharded model gathers its weights from all ranks, so all of them must make it, and its vision tower must
work on all of them or on none. A rank with fewer micro-batches, or with one of text only while others have images,
computes a small tree of another rank's groups as well, and leaves its results out: a filler.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from rl_core.distributed.ranks import Ranks
from rl_core.models.packing import TreeInput
from rl_core.progress import TALLY
from rl_core.training.freed_memory import FREED
from rl_core.training.microbatches import response_tokens, trees_of
from rl_core.types import Group, TrainGroup

AnyGroup = TypeVar("AnyGroup", bound=Group | TrainGroup)

Media = frozenset[str]
"""What a tree shows besides text: "image", "video", both or nothing. The vision tower works once for each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPass(Generic[AnyGroup]):
    """One pass of the model on this rank: the groups of a micro-batch, none if only other ranks have one, and fillers,
    which are computed after them and whose results are left out."""

    groups: Sequence[AnyGroup]
    fillers: Sequence[TreeInput]

    @property
    def trees(self) -> list[TreeInput]:
        """What is packed."""
        return [*trees_of(self.groups), *self.fillers]

    @property
    def num_tokens(self) -> int:
        """Response tokens of the groups, which come before those of the fillers."""
        return response_tokens(self.groups)

    def backward(self, results: torch.Tensor, loss: torch.Tensor | None) -> None:
        """The backward pass of the loss, which is None without groups. `results` are what the model computed for own
        and fillers' tokens; these take part with a gradient of zero, because their pass gathers weights as well."""
        idle = 0.0 * results[self.num_tokens :].sum() if self.fillers else None
        terms = [term for term in (loss, idle) if term is not None]
        torch.autograd.backward(terms)


def equal_passes(microbatches: Sequence[Sequence[AnyGroup]], ranks: Ranks) -> Iterator[RankPass[AnyGroup]]:
    """The passes for this rank's micro-batches, as many as the rank with the most has. Every rank calls it. Each pass
    counts as soon as it is computed, those of a learner once, and each begins without the memory that the one before
    has freed."""
    for one in _planned(microbatches, ranks):
        yield one
        FREED.give_back()
        if ranks.leads_learner:
            TALLY.passed += one.num_tokens


def _planned(microbatches: Sequence[Sequence[AnyGroup]], ranks: Ranks) -> list[RankPass[AnyGroup]]:
    """A rank with all weights needs nobody for its passes, and computes its micro-batches as they are."""
    if ranks.shards is None:
        return [RankPass(groups=groups, fillers=()) for groups in microbatches]
    own = [frozenset(media for tree in trees_of(groups) for media in media_of(tree)) for groups in microbatches]
    gathered = ranks.gather((own, _smallest_trees(microbatches)))
    candidates = _smallest(tree for _, trees in gathered for tree in trees.values())
    passes: list[RankPass[AnyGroup]] = []
    for number in range(max(len(shown) for shown, _ in gathered)):
        wanted = frozenset(medium for shown, _ in gathered for medium in _at(shown, number) or ())
        groups = microbatches[number] if number < len(own) else ()
        passes.append(RankPass(groups=groups, fillers=fillers(_at(own, number), wanted, candidates)))
    return passes


def _at(shown: Sequence[Media], number: int) -> Media | None:
    return shown[number] if number < len(shown) else None


def media_of(tree: TreeInput) -> Media:
    """What the prompt and the insertions show."""
    images = tree.prompt.image_uids or any(put.image_uids for puts in tree.insertions for put in puts)
    return frozenset(name for name, shown in (("image", images), ("video", tree.prompt.videos)) if shown)


def fillers(present: Media | None, wanted: Media, candidates: Mapping[Media, TreeInput]) -> list[TreeInput]:
    """The trees with which a pass whose own trees show `present` shows exactly `wanted`, and has at least one tree.
    There is a candidate for each combination of media that any rank has."""
    chosen: list[TreeInput] = []
    if present is None and not wanted:
        return [candidates[frozenset()]]
    for medium in sorted(wanted - (present or frozenset())):
        if any(medium in media_of(tree) for tree in chosen):
            continue
        fitting = {media: tree for media, tree in candidates.items() if medium in media <= wanted}
        chosen.append(min(fitting.values(), key=_size))
    return chosen


def _smallest_trees(microbatches: Sequence[Sequence[Group | TrainGroup]]) -> dict[Media, TreeInput]:
    return _smallest(tree for groups in microbatches for group in groups for tree in _small_trees(group))


def _small_trees(group: Group | TrainGroup) -> Iterator[TreeInput]:
    """The prompt with one token; and each response that shows what the prompt does not."""
    yield TreeInput(prompt=group.prompt, responses=[group.rollouts[0].response_ids[:1]])
    if not group.prompt.image_uids:
        for rollout in group.rollouts:
            if rollout.image_uids:
                yield TreeInput(prompt=group.prompt, responses=[rollout.response_ids], insertions=[rollout.insertions])


def _smallest(trees: Iterable[TreeInput]) -> dict[Media, TreeInput]:
    found: dict[Media, TreeInput] = {}
    for tree in trees:
        media = media_of(tree)
        if media not in found or _size(tree) < _size(found[media]):
            found[media] = tree
    return found


def _size(tree: TreeInput) -> tuple[int, str]:
    """Tokens; the uid of the prompt decides between equal ones, so that no order does."""
    return len(tree.prompt.token_ids) + sum(len(branch.token_ids) for branch in tree.branches), tree.prompt.uid
