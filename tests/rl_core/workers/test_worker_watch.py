"""What Ray says about a worker's end becomes a sentence that says what to do."""

import re

import pytest
from ray.exceptions import ActorDiedError, NodeDiedError, OutOfMemoryError

from rl_core.workers.worker_watch import cause_of_death


def died(text: str) -> ActorDiedError:
    error = ActorDiedError()
    error.error_msg = text
    return error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (
            OutOfMemoryError("1 worker(s) were killed due to the node running low on memory. Threshold: 0.95"),
            r"RAY_memory_usage_threshold of it \(0\.95 if it is not set\).*Threshold: 0\.95",
        ),
        (
            OutOfMemoryError(
                "The node is running low on memory. Memory on the node (ID: 1) was 9GB used / 10GB limit (0.96) OOM "
                "kill reason: Memory usage 9B exceeded threshold of 8B (95% of 10B limit) and much more Top 10 "
                "memory users: PID MEM(GB) COMMAND 7 8.0 ray::RankActor Refer to the documentation"
            ),
            r"\(Memory on the node \(ID: 1\) was 9GB .* \(95% of 10B limit\); Top 10 memory users: .*RankActor\)$",
        ),
        (NodeDiedError("The node died: missed heartbeats"), "its machine is gone .*missed heartbeats"),
        (died("The actor is dead because its node has died. Node Id: 1"), "its machine is gone"),
        (died("Worker exits with an exit code 7. It was asked to."), "its process ended with exit code 7"),
        (died("connection error code 2. End of file. Some common causes"), "SIGKILL.*dmesg"),
        (died("something else"), "something else"),
    ],
)
def test_every_end_has_its_sentence(error, cause):
    assert re.search(cause, cause_of_death(error))
