"""A rank that does not start in time, or hangs, is named, with what it is doing and what to do; in real actors."""

import re
import time
from collections.abc import Iterator

import pytest
import ray

from rl_core.config.cluster import ClusterConfig
from rl_core.progress import TALLY
from rl_core.workers.actor_group import ActorGroup
from rl_core.workers.protocol import WorkerDied
from rl_core.workers.ray_cluster import _CONCURRENCY_GROUPS, RayCluster
from tests.machines import SOON
from tests.processes import gone
from tests.rl_core.workers.sluggish import Duty, Sluggish
from tests.servers import wait_until

LIMIT = 4.0
"""Seconds of a limit that expires."""

WHAT_TO_DO = r"within 4 s \(cluster\.start_timeout_seconds: raise it if"

SECOND = r"worker 1 of 2 \(process \d+ on [^)]+\)"


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A local cluster, which this process has joined."""
    cluster = RayCluster(ClusterConfig(devices=2, device="cpu"))
    yield
    cluster.close()


def group_of(
    *duties: Duty, start_seconds: float = SOON, hang_seconds: float = SOON, reading_seconds: float = 0.0
) -> ActorGroup:
    """A rank for each duty, whose process already runs if it ever will: no limit is for a busy machine."""
    kind = ray.remote(num_cpus=0, concurrency_groups=_CONCURRENCY_GROUPS)(Sluggish)
    actors = [kind.remote(duty) for duty in duties]
    ray.get([actor.process.remote() for actor, duty in zip(actors, duties, strict=True) if duty != "late process"])
    return ActorGroup(actors, start_seconds=start_seconds, hang_seconds=hang_seconds, reading_seconds=reading_seconds)


def opened(*duties: Duty, **limits: float) -> ActorGroup:
    """A rank for each duty, ready for calls."""
    group = group_of(*duties, **limits)
    group.find_processes()
    group.open([None] * len(duties))
    return group


def assert_ended(group: ActorGroup) -> None:
    """All ranks, those too that did what they should."""
    assert group.is_broken
    wait_until(lambda: gone([process.pid for process in group.processes]), "all ranks end", seconds=SOON)


def assert_is_a_sentence(text: str) -> None:
    assert "\n" not in text and "File " not in text and "Traceback" not in text


def test_a_process_that_does_not_start_in_time_is_named_with_the_limit(cluster):
    group = group_of("willing", "late process", start_seconds=LIMIT)
    with pytest.raises(WorkerDied, match=rf"^the process of worker 1 of 2 did not start {WHAT_TO_DO}"):
        group.find_processes()
    assert group.is_broken


def test_a_worker_that_does_not_load_its_model_in_time_is_named_with_the_limit_and_what_it_does(cluster):
    """The limit is that of both parts of the start together."""
    group = group_of("willing", "late model", start_seconds=LIMIT, reading_seconds=1)
    group.find_processes()
    with pytest.raises(WorkerDied) as error:
        group.open([None, None])
    said = f"{error.value}"
    what_to_do = WHAT_TO_DO.replace("4 s", "4 s and 1 s to read the weights")
    assert re.match(rf"{SECOND} did not end start {what_to_do}", said)
    assert_is_a_sentence(said)
    assert "reads_from_a_dead_disk" in error.value.lost.stacks
    assert "worker 0" not in said + error.value.lost.stacks
    assert_ended(group)


def test_reading_the_weights_has_a_time_of_its_own(cluster):
    group = group_of("willing", start_seconds=0.001, reading_seconds=SOON)
    group.open([None])
    assert group.call("update", None) == [None]
    group.close()


@pytest.mark.parametrize(("kind", "method"), [("call", "update"), ("call_concurrently", "write_snapshot")])
def test_a_death_is_the_cause_of_the_error_of_a_rank_that_misses_the_dead_one(cluster, kind, method):
    """Although the error comes first, as of a connection that is closed."""
    group = opened("bereft", "dying")
    with pytest.raises(
        WorkerDied, match=rf"^{SECOND} ended during {method}: its process ended without a word"
    ) as error:
        getattr(group, kind)(method, None)
    lost = error.value.lost
    assert re.fullmatch(SECOND, lost.names)
    assert lost.machines == [group.processes[1].host]
    assert lost.cause.startswith("its process ended without a word")
    assert_ended(group)


def test_a_worker_that_computes_does_not_hang_however_long_it_takes(cluster):
    """And what it computes is counted here meanwhile."""
    group, before = opened("slow", "willing", hang_seconds=3.0), TALLY.copy()
    assert group.call("update", None) == [None, None]
    assert TALLY.since(before).passed == 1200
    group.close()


@pytest.mark.parametrize(
    ("call", "said", "doing"),
    [
        (
            lambda group: group.call("update", None),
            r"no worker has made any progress in update since \d\d:\d\d:\d\d, for more than",
            "sleeps_in_an_update",
        ),
        pytest.param(
            lambda group: group.call_concurrently("write_snapshot", None),
            "write_snapshot has not ended after",
            "sleeps_in_a_snapshot",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_worker_that_hangs_is_named_with_the_function_in_which_it_hangs(cluster, call, said, doing):
    """In a call, and in one while another runs."""
    group = opened("willing", "hanging", hang_seconds=2.0)
    began = time.monotonic()
    with pytest.raises(WorkerDied) as error:
        call(group)
    assert 2.0 <= time.monotonic() - began < SOON
    message, lost = f"{error.value}", error.value.lost
    assert re.match(said, message)
    assert re.search(
        rf"2 s \(cluster\.hang_timeout_seconds: raise it if .*\); {SECOND} did not end it\. The other", message
    )
    assert_is_a_sentence(message)
    assert_is_a_sentence(lost.cause)
    assert re.search(rf"^{SECOND}:\n(.*\n)*.*{doing}", lost.stacks)
    assert doing in "".join(error.value.__notes__), "a log with a traceback has them"
    assert "worker 0" not in message + lost.stacks, "it had done its part"
    assert re.fullmatch(SECOND, lost.names)
    assert_ended(group)


def test_a_mistake_of_an_actor_is_raised_as_it_is(cluster):
    """Ray puts the stack into the text of its own error."""
    group = opened("willing")
    asked = group._actors[0].__ray_call__.remote(lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError) as error:
        group.finish({asked: 0}, "update")
    assert_is_a_sentence(f"{error.value}")
    group.close()
