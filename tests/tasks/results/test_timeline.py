"""The timeline shows the last steps, each worker's work in its place."""

from typing import Any

import pytest

from tasks.results.worker_rows import timeline


def line(step: int, *spans: list[list[Any]]) -> dict[str, Any]:
    return {"step": step, "spans": list(spans)}


def test_work_lies_where_it_happened() -> None:
    found = timeline(
        [
            line(1, [["update", 0.0, 1.0]], [["generate", 0.0, 1.0]]),
            line(2, [["update", 10.0, 14.0]], [["generate", 10.0, 11.0]]),
            line(3, [["update", 16.0, 18.0]], []),
            line(4, [["update", 19.0, 20.0]], [["sync", 18.0, 19.0], ["generate", 19.0, 20.0]]),
        ]
    )
    assert found is not None and (found.first_step, found.last_step, found.seconds) == (2, 4, 10.0)
    trainer, generator = found.workers
    assert [(bar.work, bar.begin, bar.length) for bar in trainer] == [
        ("update", 0.0, pytest.approx(0.4)),
        ("update", pytest.approx(0.6), pytest.approx(0.2)),
        ("update", pytest.approx(0.9), pytest.approx(0.1)),
    ]
    assert [bar.work for bar in generator] == ["generate", "sync", "generate"]


def test_steps_on_other_workers_are_left_out() -> None:
    found = timeline([line(1, [["update", 0.0, 1.0]]), line(2, [["update", 5.0, 6.0]], [["generate", 5.0, 6.0]])])
    assert found is not None and (found.first_step, len(found.workers)) == (2, 2)


def test_there_is_none_where_nothing_was_recorded() -> None:
    assert timeline([]) is None
    assert timeline([{"step": 1}, line(2, [], [])]) is None
