"""Puts the results of several workers together, as if one worker had computed everything."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from rl_core.digests import FileRecord
from rl_core.training.batches import OptimizerStepReport, UpdateResult

Value = TypeVar("Value")


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
