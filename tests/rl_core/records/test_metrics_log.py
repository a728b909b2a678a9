"""Each step is recorded once, whole or not at all, in bytes that depend on nothing but the record."""

import errno
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.records.metrics_log import JsonLines, RunLogs, read
from rl_core.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return RunDirectory(tmp_path / "run")


def steps(path: Path) -> list[int]:
    return [record["step"] for record in read(path)]


numbers = st.floats(allow_nan=False) | st.integers(-(2**53), 2**53)


@given(records=st.lists(st.dictionaries(st.text(), numbers | st.text() | st.none()), max_size=5))
@settings(deadline=None, max_examples=40)
def test_records_come_back_equal_and_in_order(records):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "deep" / "lines.jsonl"
        for record in records:
            JsonLines(path).append(record)
        assert read(path) == records


def test_equal_records_give_equal_bytes_whatever_the_order_of_their_keys(tmp_path):
    for name, keys in (("a", ("loss", "kl", "step")), ("b", ("step", "loss", "kl"))):
        JsonLines(tmp_path / name).append(dict.fromkeys(keys, 0.1 + 0.2))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert b"0.30000000000000004" in (tmp_path / "a").read_bytes()


@pytest.mark.parametrize("torn", ['{"step":3,"lo', "\0\0\0\0", "\0\0\0\n", '{"step":3'])
def test_a_torn_last_line_is_cut_when_the_file_is_opened_and_never_read(tmp_path, torn):
    path = tmp_path / "metrics.jsonl"
    for step in (1, 2):
        JsonLines(path).append({"step": step})
    whole = path.read_bytes()
    with path.open("a") as file:
        file.write(torn)
    if not torn.endswith("\n"):
        assert steps(path) == [1, 2]
    JsonLines(path).append({"step": 3})
    assert path.read_bytes() == whole + b'{"step":3}\n'


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":1}\nstep 2\n{"step":3}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2 is not a JSON object: b'step 2'"):
        read(path)


@given(
    numbered=st.lists(st.tuples(st.integers(0, 9), st.floats(allow_nan=False)), max_size=8), step=st.integers(-1, 10)
)
@settings(deadline=None, max_examples=40)
def test_cutting_back_keeps_exactly_the_lines_up_to_the_step(numbered, step):
    with tempfile.TemporaryDirectory() as folder:
        cut, expected = JsonLines(Path(folder) / "cut"), JsonLines(Path(folder) / "expected")
        for number, value in numbered:
            cut.append({"step": number, "value": value})
            if number <= step:
                expected.append({"step": number, "value": value})
        cut.cut_back(step)
        assert read(cut.path) == read(expected.path)
        if expected.path.exists():
            assert cut.path.read_bytes() == expected.path.read_bytes()


def record_three_steps(run: RunDirectory, *places: Callable[[int], Path]) -> RunLogs:
    """In place of all that was there; each step has a file at each of the places."""
    for path in (run.metrics, run.timings):
        path.unlink(missing_ok=True)
    logs = RunLogs(run)
    logs.cut_back(-1)
    for step in (1, 2, 3):
        logs.log_step(step, {"loss": step / 7})
        logs.log_timing(step, {"total_s": 1.0})
        for place in places:
            place(step).parent.mkdir(exist_ok=True)
            place(step).write_text(f"rows of step {step}")
    return logs


def test_a_kill_anywhere_in_a_cut_leaves_the_file_before_or_after_it(run, killed_before_each_call):
    """What follows a kill is another cut, which ends the same: that is how a resumed run starts."""
    seen = set()

    def prepare():
        record_three_steps(run, run.rollouts, run.validation)

    def check():
        assert steps(run.metrics) in ([1, 2, 3], [1])
        seen.add(len(read(run.metrics)))
        RunLogs(run).cut_back(1)
        assert steps(run.metrics) == steps(run.timings) == [1]
        for folder in (run.rollouts(0).parent, run.validation(0).parent):
            assert [path.name for path in folder.iterdir()] == ["step-000001.parquet"]

    kills = killed_before_each_call(prepare, lambda: RunLogs(run).cut_back(1), check)
    assert kills > 8
    assert seen == {1, 3}


def test_a_kill_anywhere_in_going_back_keeps_every_rollout_that_need_not_be_generated_again(
    run, killed_before_each_call
):
    def check():
        RunLogs(run).rewind(1)
        assert steps(run.metrics) == [1]
        assert [path.name for path in run.rollouts(0).parent.iterdir()] == ["step-000001.parquet"]
        for step in (2, 3):
            assert run.repeated_rollouts(step).read_text() == f"rows of step {step}"
        assert not run.repeated_rollouts(1).exists()

    kills = killed_before_each_call(
        lambda: record_three_steps(run, run.rollouts), lambda: RunLogs(run).rewind(1), check
    )
    assert kills > 5


def test_rollouts_that_were_kept_are_forgotten_when_their_steps_are_done(run):
    logs = record_three_steps(run, run.rollouts)
    logs.rewind(1)
    logs.forget_repeated(2)
    assert [path.name for path in run.repeated_rollouts(0).parent.iterdir()] == ["step-000003.parquet"]
    logs.forget_repeated(3)
    assert not run.repeated_rollouts(0).parent.exists()
    run.rollouts(4).write_text("rows")
    logs.rewind(1)
    logs.cut_back(1)
    assert not run.repeated_rollouts(0).parent.exists()


def test_a_full_disk_leaves_the_file_as_it_was(small_disk):
    lines = JsonLines(small_disk / "metrics.jsonl")
    lines.append({"step": 1})
    before = lines.path.read_bytes()
    with pytest.raises(OSError) as full:
        lines.append({"step": 2, "text": "x" * (2 << 20)})
    assert full.value.errno == errno.ENOSPC
    assert lines.path.read_bytes() == before
    lines.append({"step": 2})
    assert steps(lines.path) == [1, 2]


def test_a_step_is_recorded_once(run):
    logs = RunLogs(run)
    logs.log_step(0, {"val/accuracy": 0.25})
    logs.log_step(1, {"loss": np.float32(0.5), "tokens": 7})
    for opened in (logs, RunLogs(run)):
        with pytest.raises(ValueError, match="step 1 come after the metrics of step 1"):
            opened.log_step(1, {"loss": 0.1})
    assert logs.metrics_of(1) == {"loss": 0.5, "tokens": 7.0}
    assert logs.metrics_of(2) == {}
