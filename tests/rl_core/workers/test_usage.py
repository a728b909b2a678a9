"""What workers have used is put together, and laid side by side."""

from rl_core.workers.usage import Usage, WorkerUsage


def used(host: str, **peaks: float) -> WorkerUsage:
    return WorkerUsage(host=host, device="CPU", seconds={"update_s": 0.123456}, peaks=peaks)


def test_the_largest_peaks_count_for_all() -> None:
    usage = Usage(workers=[used("a", update_peak_gib=1.0), used("b", update_peak_gib=2.0, save_peak_gib=0.5)])
    assert usage.together == {"update_peak_gib": 2.0, "save_peak_gib": 0.5}
    assert Usage(workers=[], sent_mib=3.0).together == {"sent_mib": 3.0}


def test_columns_have_a_value_for_each_worker() -> None:
    usage = Usage(workers=[used("a", update_peak_gib=1.0), used("b", save_peak_gib=0.5)])
    assert usage.columns == {
        "host": ["a", "b"],
        "device": ["CPU", "CPU"],
        "update_s": [0.1235, 0.1235],
        "update_peak_gib": [1.0, None],
        "save_peak_gib": [None, 0.5],
    }
    assert Usage(workers=[]).columns == {}
