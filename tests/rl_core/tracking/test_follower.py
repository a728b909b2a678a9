"""A tracker gets every step once, in order, whatever its server does meanwhile."""

import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.records.metrics_log import RunLogs
from rl_core.run_directory import RunDirectory
from rl_core.tracking.follower import SENDING_SECONDS, TrackerFollower
from rl_core.tracking.tracker import Table, TrackerUnavailable


class ListTracker:
    """A tracker on a list, with a server that can be away or lose its answers, and a clock that each request moves."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, dict[str, float]]] = []
        self.tables: dict[int, dict[str, Table]] = {}
        self.away = False
        self.answers_get_lost = False
        self.closed = False
        self.now = 0.0
        self.seconds_a_request = 0.0
        self.requests = 0

    def clock(self) -> float:
        return self.now

    def last_step(self) -> int:
        self._request()
        return self.steps[-1][0] if self.steps else -1

    def log_generations(self, step: int, name: str, table: Table) -> None:
        self._request()
        assert step not in dict(self.steps), "a step is complete when its metrics are"
        self.tables.setdefault(step, {})[name] = table

    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._request()
        self.steps.append((step, dict(metrics)))
        if self.answers_get_lost:
            raise TrackerUnavailable("no answer")

    def close(self) -> None:
        self.closed = True

    def _request(self) -> None:
        self.requests += 1
        self.now += self.seconds_a_request
        if self.away:
            raise TrackerUnavailable("connection refused")


def sent(tracker: ListTracker) -> list[int]:
    return [step for step, _ in tracker.steps]


def test_an_outage_is_reported_once_and_made_up_for(run, caplog):
    events = []
    tracker, logs = ListTracker(), RunLogs(run)
    follower = TrackerFollower(
        tracker, run.metrics, log_event=lambda kind, **facts: events.append(f"{kind}: {facts}"), clock=tracker.clock
    )
    with caplog.at_level(logging.INFO):
        for step in range(1, 9):
            tracker.away = 3 <= step <= 6
            logs.log_step(step, {"loss": 1.0})
            follower.follow()
    assert sent(tracker) == list(range(1, 9))
    assert len(events) == 1
    assert "tracker-unavailable" in events[0]
    assert "connection refused" in events[0]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "counting-abc" in caplog.records[0].message


def test_a_server_that_lets_requests_time_out_costs_a_tenth_of_the_time_at_most(run):
    tracker, logs = ListTracker(), RunLogs(run)
    tracker.away, tracker.seconds_a_request = True, 5.0
    follower = TrackerFollower(tracker, run.metrics, clock=tracker.clock)
    for step in range(1, 1001):
        logs.log_step(step, {"loss": 1.0}) if step < 3 else None
        follower.follow()
        tracker.now += 1.0  # the training step
    assert tracker.requests * 5.0 <= 0.11 * tracker.now
    assert tracker.requests > 10


def test_late_sending_pauses_after_a_few_seconds_and_goes_on_with_the_next_call(run):
    tracker, logs = ListTracker(), RunLogs(run)
    tracker.seconds_a_request = 0.5
    for step in range(20):
        logs.log_step(step, {"loss": 1.0})
    follower = TrackerFollower(tracker, run.metrics, clock=tracker.clock)
    follower.follow()
    assert 0 < len(tracker.steps) <= SENDING_SECONDS / 0.5
    follower.follow()
    assert len(tracker.steps) > SENDING_SECONDS / 0.5
    follower.finish()
    assert sent(tracker) == list(range(20))


def test_generations_go_out_before_their_step_and_again_after_an_outage(run):
    tracker, logs = ListTracker(), RunLogs(run)
    tables = {
        1: {"generations": {"response": ["a"]}},
        2: {},
        3: {"generations": {"response": ["b"]}, "val_generations": {"response": ["c"]}},
    }
    follower = TrackerFollower(tracker, run.metrics, generations=tables.__getitem__, clock=tracker.clock)
    for step in (1, 2, 3):
        tracker.away = step == 3
        logs.log_step(step, {"loss": 1.0})
        follower.follow()
    assert (tracker.tables, sent(tracker)) == ({1: tables[1]}, [1, 2])
    tracker.away = False
    follower.catch_up()
    assert (tracker.tables, sent(tracker), tracker.closed) == ({1: tables[1], 3: tables[3]}, [1, 2, 3], False)


def test_other_errors_of_a_tracker_are_not_hidden(run):
    class Broken(ListTracker):
        def log_step(self, step, metrics):
            raise TypeError("a mistake in the tracker")

    RunLogs(run).log_step(1, {"loss": 1.0})
    with pytest.raises(TypeError, match="a mistake"):
        TrackerFollower(Broken(), run.metrics).follow()


@given(fates=st.lists(st.sampled_from(["fine", "away", "answer lost", "resumed", "cut back"]), max_size=15))
@settings(deadline=None, max_examples=40)
def test_whatever_happens_each_step_arrives_once_and_in_order(fates):
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder))
        tracker, logs, step = ListTracker(), RunLogs(run), 0
        follower = TrackerFollower(tracker, run.metrics, clock=tracker.clock)
        for fate in fates:
            if fate == "cut back":
                step = step // 2
                logs.cut_back(step)
            if fate in ("resumed", "cut back"):
                follower = TrackerFollower(tracker, run.metrics, clock=tracker.clock)
            step += 1
            logs.log_step(step, {"loss": step / 3})
            tracker.away, tracker.answers_get_lost = fate == "away", fate == "answer lost"
            follower.follow()
        tracker.away = tracker.answers_get_lost = False
        follower.finish()
        assert sent(tracker) == list(range(1, max([0, *sent(tracker)]) + 1))
        assert max([0, *sent(tracker)]) >= step
