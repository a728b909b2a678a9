"""The results of several workers are those of one, or an error that says where they part."""

from dataclasses import replace

import pytest

from rl_core.digests import FileRecord
from rl_core.loop.step_metrics import update_metrics
from rl_core.training.batches import OptimizerStepReport, TokenSums, UpdateResult
from rl_core.training.optimizer import StepOutcome
from rl_core.workers.dealing import WorkersDisagree, all_files, merged_update

OUTCOME = StepOutcome(grad_norm=1.5, lr=1e-6, applied=True)


def result(*losses: float, outcome: StepOutcome = OUTCOME, seconds: float = 1.0) -> UpdateResult:
    """The update of a worker whose groups have these losses; none of them with a weight other than 1."""
    sums = [TokenSums(sums={"loss": [loss]}, weights=[1.0]) for loss in losses]
    return UpdateResult(
        policy=[OptimizerStepReport(tokens=sums, outcome=outcome)],
        critic=[],
        log_prob_gap=None,
        nonfinite_streak=0,
        seconds={"optimizer": seconds},
    )


def test_the_sums_of_workers_that_compute_the_same_sequences_count_once():
    one, other = result(0.1), result(0.4)
    merged = merged_update([one, one, other, other], ranks_per_learner=2)
    assert merged.policy == merged_update([one, other]).policy != merged_update([one, one, other, other]).policy


def test_two_workers_have_the_metrics_of_one():
    merged = merged_update([result(0.1, 0.7), result(0.4, seconds=3.0)])
    assert update_metrics(merged) == update_metrics(result(0.4, 0.1, 0.7))
    assert merged.seconds == {"optimizer": 3.0}


def test_the_seconds_of_an_update_are_those_of_the_worker_that_waited_least():
    slow, fast = (
        replace(result(0.1), seconds={"forward_backward": work, "exchange": exchange})
        for work, exchange in ((3.0, 0.1), (2.0, 1.2))
    )
    assert merged_update([fast, slow]).seconds == slow.seconds


def test_a_worker_without_groups_changes_nothing():
    assert update_metrics(merged_update([result(), result(0.4)])) == update_metrics(result(0.4))


@pytest.mark.parametrize("other", [replace(OUTCOME, grad_norm=1.5000001), replace(OUTCOME, applied=False)])
def test_workers_that_part_are_an_error_with_both_values(other):
    with pytest.raises(WorkersDisagree, match=r"update of the policy \(worker 0: .*; worker 1: .*weights have parted"):
        merged_update([result(0.1), result(0.1, outcome=other)])


def test_the_files_of_all_workers_are_one_checkpoint():
    one, other = ({name: FileRecord(size=1, sha256=name)} for name in ("a", "b"))
    assert all_files([one, other]) == one | other
    with pytest.raises(WorkersDisagree, match="two workers have written a"):
        all_files([one, one])
