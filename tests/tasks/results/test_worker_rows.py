"""How each worker spent its time."""

from typing import Any

import pytest

from tasks.results.worker_rows import devices_words, timeline, worker_rows


def columns(*, host: tuple[str, ...] = ("a", "b"), **changes: list[float | None]) -> dict[str, object]:
    count = len(host)
    times = {
        "generate_s": [1.0, 0.5],
        "update_s": [2.0, 2.0],
        "sync_s": [0.25, 0.25],
        "save_s": [0.25, 0.25],
        "load_s": [0.0, 0.0],
        "idle_s": [0.5, 1.0],
        "total_s": [4.0, 4.0],
        "update_peak_gib": [1.0, 2.0],
    }
    return {"host": list(host), "device": ["CPU"] * count, **{k: v[:count] for k, v in {**times, **changes}.items()}}


def test_shares_are_of_all_steps_and_add_up() -> None:
    lines = [{"step": 1, "workers": columns()}, {"step": 2, "workers": columns(update_peak_gib=[3.0, None])}]
    first, second = worker_rows(lines)
    assert first.shares == {"generating": 0.25, "training": 0.5, "weights": 0.125, "idle": 0.125}
    assert sum(second.shares.values()) == pytest.approx(1.0)
    assert (first.name, first.host, first.device, first.memory, second.memory) == ("0", "a", "CPU", 3.0, 2.0)


def test_a_step_that_begins_with_a_start_is_left_out_if_there_are_others() -> None:
    starting = {"step": 1, "workers": columns(load_s=[4.0, 4.0], sync_s=[8.0, 8.0], total_s=[16.0, 16.0])}
    (first, _) = worker_rows([starting, {"step": 2, "workers": columns()}])
    assert first.shares["weights"] == 0.125
    (alone, _) = worker_rows([starting])
    assert alone.shares["weights"] == pytest.approx(12.25 / 16)


def test_only_the_steps_on_the_last_devices_count() -> None:
    before = {"step": 1, "workers": columns(update_peak_gib=[9.0, 9.0])}
    (row,) = worker_rows([before, {"step": 2, "workers": columns(host=("c",))}])
    assert (row.host, row.memory) == ("c", 1.0)


def test_the_memory_of_a_gpu_goes_before_that_of_the_process() -> None:
    (row, _) = worker_rows([{"step": 1, "workers": columns(update_gpu_used_gib=[70.0, 71.0])}])
    assert row.memory == 70.0
    (row, _) = worker_rows([{"step": 1, "workers": columns(update_peak_gib=[None, None])}])
    assert row.memory is None


def test_devices_are_counted_by_machine() -> None:
    assert devices_words(worker_rows([{"workers": columns()}])) == "1 x CPU on a, 1 x CPU on b"
    assert devices_words(worker_rows([{"workers": columns(host=("a", "a"))}])) == "2 x CPU on a"
    assert devices_words([]) == ""


def test_a_run_that_measured_nothing_has_no_rows() -> None:
    assert worker_rows([]) == worker_rows([{"step": 1, "total_s": 1.0}]) == []


def line(step: int, *spans: list[list[Any]]) -> dict[str, Any]:
    return {"step": step, "spans": list(spans)}


def test_work_is_drawn_at_its_time() -> None:
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


def test_without_records_there_is_no_timeline() -> None:
    assert timeline([]) is None
    assert timeline([{"step": 1}, line(2, [], [])]) is None
