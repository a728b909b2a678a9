"""Which of several workers computes which groups, and which answers which prompts; and how their results are put
together, as if one had computed everything.

What a worker computes is a function of what is dealt alone. So the old log-probs of a group are computed where its
update is, in the same micro-batches.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from rl_core.digests import FileRecord
from rl_core.training.batches import OptimizerBatch, OptimizerStepReport, UpdateBatch, UpdateResult
from rl_core.training.microbatches import AnyGroup, tree_tokens
from rl_core.types import GenerationRequest, Group, TrainGroup

Item = TypeVar("Item")
Value = TypeVar("Value")

Deal = Sequence[Sequence[int]]
"""[worker] -> the places, ascending, of the items that it gets; every place occurs once."""

PAIRS_A_TOKEN: Final = 12_288
"""Pairs of tokens whose attention costs as much as the matrices of one token: 6 x the hidden size, here 2048. A layer
takes 24 h^2 operations for a token and 4 h for a pair, if its feed-forward part is as wide as usual."""

_SHARES_LEFT: Final = 2
"""Of what is left, a generator takes one share of this many for each generator."""


class WorkersDisagree(RuntimeError):
    """Workers that must have found the same have not: their weights have parted, and training on would be wrong."""


def the_same(values: Sequence[Value], what: str) -> Value:
    """The value that all workers have found. Two NaNs are the same. Raises WorkersDisagree."""
    if len({repr(value) for value in values}) > 1:
        found = "; ".join(f"worker {rank}: {value}" for rank, value in enumerate(values))
        raise WorkersDisagree(
            f"the workers do not have the same {what} ({found}): their weights have parted. Start the run again to "
            f"continue from its last checkpoint"
        )
    return values[0]


def merged_update(results: Sequence[UpdateResult], *, ranks_per_learner: int = 1) -> UpdateResult:
    """The result of an update that several workers have made together: all sums over tokens (those of a learner's ranks
    count once), what every worker has found, and the seconds of the slowest worker, which waited least for the others
    to exchange gradients. Raises WorkersDisagree if gradient norm, learning rate, skipped steps or the agreement with
    the generator differ."""
    return UpdateResult(
        policy=_merged_reports([result.policy for result in results], ranks_per_learner, "update of the policy"),
        critic=_merged_reports([result.critic for result in results], ranks_per_learner, "update of the critic"),
        log_prob_gap=the_same([result.log_prob_gap for result in results], "agreement with the generator"),
        nonfinite_streak=the_same([result.nonfinite_streak for result in results], "number of skipped steps"),
        seconds=max((result.seconds for result in results), key=_seconds_of_work),
    )


def _seconds_of_work(parts: Mapping[str, float]) -> float:
    return sum(seconds for name, seconds in parts.items() if name != "exchange")


def _merged_reports(
    reports: Sequence[Sequence[OptimizerStepReport]], ranks_per_learner: int, what: str
) -> list[OptimizerStepReport]:
    return [
        OptimizerStepReport(
            tokens=[sums for report in of_workers[::ranks_per_learner] for sums in report.tokens],
            outcome=the_same([report.outcome for report in of_workers], what),
        )
        for of_workers in zip(*reports, strict=True)
    ]


def all_files(written: Sequence[Mapping[str, FileRecord]]) -> dict[str, FileRecord]:
    """The records of the files that the workers have written into one folder. Raises WorkersDisagree if two have
    written the same one."""
    files: dict[str, FileRecord] = {}
    for of_worker in written:
        if both := sorted(files.keys() & of_worker.keys()):
            raise WorkersDisagree(f"two workers have written {', '.join(both)}")
        files |= of_worker
    return files


def work_of(group: Group | TrainGroup) -> int:
    """The work of a group's tree, in units of `PAIRS_A_TOKEN`-ths of a token: its tokens, and the pairs that attend."""
    prompt = len(group.prompt.token_ids)
    lengths = [rollout.num_tokens for rollout in group.rollouts]
    pairs = prompt * (prompt + 1) // 2 + sum(prompt * length + length * (length + 1) // 2 for length in lengths)
    return PAIRS_A_TOKEN * tree_tokens(group) + pairs


def deal(groups: Sequence[AnyGroup], workers: int) -> Deal:
    """Balance groups over workers: the groups in falling order of work, each to the worker with the least so far.

    Graham, "Bounds on multiprocessing timing anomalies" (1969): the most that a worker gets is at most
    4/3 - 1/(3 workers) times the best possible. The deal does not depend on the order of the groups.
    """
    parts: list[list[int]] = [[] for _ in range(workers)]
    loads = [(0, worker) for worker in range(workers)]
    work = [work_of(group) for group in groups]
    for place in sorted(range(len(groups)), key=lambda place: (-work[place], groups[place].prompt.uid)):
        load, worker = heapq.heappop(loads)
        parts[worker].append(place)
        heapq.heappush(loads, (load + work[place], worker))
    return [sorted(part) for part in parts]


def dealt(items: Sequence[Item], places: Deal) -> list[list[Item]]:
    """[worker] -> its items, in their order."""
    return [[items[place] for place in part] for part in places]


def put_back(results: Sequence[Sequence[Item]], places: Deal) -> list[Item]:
    """The results of the workers in the order of what was dealt; the inverse of `dealt`."""
    found = {
        place: result
        for part, of_worker in zip(places, results, strict=True)
        for place, result in zip(part, of_worker, strict=True)
    }
    return [found[place] for place in range(len(found))]


def deal_update(batch: UpdateBatch, workers: int) -> list[UpdateBatch]:
    """[worker] -> its part of an update: every optimizer batch, with its own groups and the totals of all. A batch that
    several PPO epochs repeat stays one object, which is sent once."""
    parts: dict[int, list[OptimizerBatch]] = {}
    for each in (*batch.policy, *batch.critic):
        if id(each) not in parts:
            of_workers = dealt(each.groups, deal(each.groups, workers))
            parts[id(each)] = [replace(each, groups=part) for part in of_workers]
    return [
        replace(
            batch,
            policy=[parts[id(each)][worker] for each in batch.policy],
            critic=[parts[id(each)][worker] for each in batch.critic],
        )
        for worker in range(workers)
    ]


def equal_blocks(requests: Sequence[GenerationRequest], workers: int) -> list[list[GenerationRequest]]:
    """One block for each generator, of whole groups: the numbers of groups differ by one at most. Groups are dealt in
    turn, so that the first groups of a draw, which may be all that is needed of it, are the first of every generator.
    """
    groups = _by_prompt(requests)
    return [_joined(groups[worker::workers]) for worker in range(workers)]


def shrinking_blocks(requests: Sequence[GenerationRequest], workers: int) -> list[list[GenerationRequest]]:
    """Blocks of whole groups in the order in which generators take them, the next one as soon as they are done.

    Each block is a fixed share of what is left (Polychronopoulos and Kuck, "Guided self-scheduling", 1987): large ones
    first, which fill a generator, and small ones at the end, which even out what the large ones took.
    """
    groups, blocks = _by_prompt(requests), []
    while groups:
        size = max(1, len(groups) // (_SHARES_LEFT * workers))
        blocks.append(_joined(groups[:size]))
        groups = groups[size:]
    return blocks


def _by_prompt(requests: Sequence[GenerationRequest]) -> list[list[GenerationRequest]]:
    """Together, so that one generator computes the prompt once."""
    groups: dict[str, list[GenerationRequest]] = {}
    for request in requests:
        groups.setdefault(request.prompt.uid, []).append(request)
    return [*groups.values()]


def _joined(groups: Sequence[Sequence[GenerationRequest]]) -> list[GenerationRequest]:
    return [request for group in groups for request in group]
