"""The plain files of a run's numbers: a JSON object in each line, which is on the disk before the next one.

metrics.jsonl holds only values that follow from config, data and seed, so that a resumed run ends with the same bytes
as an unbroken one. Values that depend on the clock go to timings.jsonl, and incidents to events.jsonl.
"""

import json
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rl_core.files import atomic_write_bytes, cut_file, fsync_folder, remove_folder, sweep_temporaries
from rl_core.redaction import redact_tree
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import ensure_held

SETTINGS_EVENT: Final = "settings"
"""The kind of the event that records what `auto` became: `chosen` and `why`, in `changed` what was different before,
and the machine: `on_gpu`, and `gpu_gib`, which is null where it is not known."""

LOST_EVENT: Final = "workers-lost"
"""The kind of the event that workers or a machine were lost: their names (`workers`, `machines`), `cause`, `stage`, the
`step` that was under way, how many finished `steps` are done again, and how many `seconds` were spent in vain."""

NO_SIGNAL_EVENT: Final = "no-signal"
"""The kind of the event that a run has taught nothing for several steps: `step`, `steps` (how many in a row), `why`."""

DOUBT_EVENT: Final = "doubt"
"""The kind of the event that a run may learn nothing, as its data show before it starts: `why`."""

RANGE_EVENT: Final = "out-of-range"
"""The kind of the event that entropy or KL has left its range for several steps: `step`, `steps` (how many), `why`."""

TARGET_EVENT: Final = "target-reached"
"""The kind of the event that `trainer.stop_at` ends the training: `step`, `why`."""

_STEP_FILE = re.compile(r"step-(\d+)\.parquet")


class JsonLines:
    """A file of JSON objects, one in each line, to which one process appends. Equal records give equal bytes. Opening
    the file cuts off a last line that a killed process or a full disk left incomplete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _cut_torn_end(path)

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one line and flush it to the disk. After an OSError (disk full) the file is as it was before."""
        line = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
        is_new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            _append_whole(descriptor, line.encode())
        finally:
            os.close(descriptor)
        if is_new:
            fsync_folder(self.path.parent)

    def cut_back(self, step: float) -> None:
        """Drop the lines of all steps after `step`, and damaged ones, whole or not at all."""
        if not self.path.exists():
            return
        kept = b"".join(lines_until(self.path, step))
        if len(kept) < self.path.stat().st_size:
            atomic_write_bytes(self.path, kept)


def step_files(folder: Path) -> list[tuple[int, Path]]:
    """(step, file) of the rollouts or validations in a folder, in the order of the steps."""
    named = ((_STEP_FILE.fullmatch(path.name), path) for path in folder.glob("step-*.parquet"))
    return sorted((int(match[1]), path) for match, path in named if match)


def _later_files(folder: Path, step: float) -> list[Path]:
    return [path for number, path in step_files(folder) if number > step]


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a file, without a last line that is being written. Raises ValueError, which names the line, when
    one is not a JSON object."""
    if not path.exists():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    return [_parse(line, path, number) for number, line in enumerate(lines, start=1)]


def read_after(path: Path, step: int) -> list[dict[str, Any]]:
    """The records of all steps after `step`; only these are parsed."""
    if not path.exists():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    later: list[dict[str, Any]] = []
    for number in range(len(lines), 0, -1):
        record = _parse(lines[number - 1], path, number)
        if record["step"] <= step:
            break
        later.append(record)
    return later[::-1]


def lines_until(path: Path, step: float) -> list[bytes]:
    """The unchanged lines of the steps up to `step`, without damaged lines."""
    lines = path.read_bytes().splitlines(keepends=True)
    return [line for line in lines if (known := _step_of(line)) is not None and known <= step]


def readable_steps(path: Path) -> set[int]:
    """The steps that have a line; damaged lines are ignored."""
    if not path.exists():
        return set()
    return {step for line in path.read_bytes().splitlines() if (step := _step_of(line)) is not None}


def validated_steps(path: Path) -> set[int]:
    """The steps after which the lines of a file of metrics have a validation; damaged lines are ignored."""
    if not path.exists():
        return set()
    return {
        step for line in path.read_bytes().splitlines() if b'"val/' in line and (step := _step_of(line)) is not None
    }


class RunLogs:
    """Writes the metrics, timings and events of a run, for the holder of its lock."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._metrics = JsonLines(run.metrics)
        self._timings = JsonLines(run.timings)
        self._events = JsonLines(run.events)
        self._last_step = max(readable_steps(run.metrics), default=-1)

    @property
    def has_steps(self) -> bool:
        """Whether a step, or the validation before the first one, is recorded."""
        return self._last_step >= 0

    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics of a step (0 is before training), once. Raises RunLockLost when another process has taken
        the run's lock."""
        ensure_held(self._run.lock)
        if step <= self._last_step:
            raise ValueError(f"metrics of step {step} come after the metrics of step {self._last_step}")
        self._metrics.append({"step": step} | {name: float(value) for name, value in metrics.items()})
        self._last_step = step

    def log_timing(
        self,
        step: int,
        timings: Mapping[str, float],
        *,
        workers: Mapping[str, Sequence[float | str | None]] | None = None,
        spans: Sequence[Sequence[tuple[str, float, float]]] = (),
    ) -> None:
        """Write the timings of a step; in `workers`, those of each worker ([name] -> [worker] -> value), and in `spans`
        what each of them did when."""
        line: dict[str, Any] = {"step": step} | {name: float(value) for name, value in timings.items()}
        line |= {} if workers is None else {"workers": dict(workers)}
        self._timings.append(line | ({"spans": spans} if spans else {}))

    def log_event(self, kind: str, **facts: object) -> None:
        """Write an incident with its time. `facts` are JSON values; secrets in them are hidden."""
        self._events.append({"kind": kind, "time": time.time()} | redact_tree(facts))

    def metrics_of(self, step: int) -> dict[str, float]:
        """The metrics of a step; empty when it has none."""
        for record in reversed(read(self._run.metrics)):
            if record["step"] == step:
                return {name: value for name, value in record.items() if name != "step"}
        return {}

    def drop_unreadable(self) -> None:
        """Drop damaged lines of metrics and timings, so that the other lines can be read."""
        ensure_held(self._run.lock)
        for lines in (self._metrics, self._timings):
            lines.cut_back(math.inf)

    def cut_back(self, step: int) -> None:
        """Drop the metrics, timings, rollouts and validations of all steps after `step`, which a run that resumes there
        writes again. Events stay, since they did happen."""
        self._cut_back(step)
        if self._repeated.is_dir():
            remove_folder(self._repeated)

    def rewind(self, step: int, *, keep_until: float = math.inf) -> None:
        """Cut back, but keep the rollouts of the later steps, up to `keep_until`, which need not be generated again, in
        `RunDirectory.repeated_rollouts`."""
        ensure_held(self._run.lock)
        for path in _later_files(self._run.rollouts(0).parent, step):
            self._repeated.mkdir(exist_ok=True)
            path.replace(self._repeated / path.name)
        self._cut_back(step)
        for path in _later_files(self._repeated, keep_until):
            path.unlink()
        self.forget_repeated(step)

    def forget_repeated(self, step: int) -> None:
        """Remove the files of `RunDirectory.repeated_rollouts` of all steps up to `step`, which are done."""
        for number, path in step_files(self._repeated):
            if number <= step:
                path.unlink()
        if self._repeated.is_dir() and not any(self._repeated.iterdir()):
            self._repeated.rmdir()

    @property
    def _repeated(self) -> Path:
        return self._run.repeated_rollouts(0).parent

    def _cut_back(self, step: int) -> None:
        ensure_held(self._run.lock)
        self._metrics.cut_back(step)
        self._timings.cut_back(step)
        for folder in (self._run.rollouts(0).parent, self._run.validation(0).parent):
            sweep_temporaries(folder)
            for path in _later_files(folder, step):
                path.unlink()
        self._last_step = min(self._last_step, step)


def _append_whole(descriptor: int, data: bytes) -> None:
    size = os.fstat(descriptor).st_size
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _cut_torn_end(path: Path) -> None:
    """Drop the last line if it does not end, or is not JSON (a power cut leaves blocks of zeros)."""
    if not path.exists():
        return
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    last = data[data.rfind(b"\n", 0, max(end - 1, 0)) + 1 : end]
    if last and not _is_json(last):
        end -= len(last)
    if end < len(data):
        cut_file(path, end)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _step_of(line: bytes) -> int | None:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _parse(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except ValueError:
        raise ValueError(f"{path}, line {number} is not a JSON object: {line[:80]!r}") from None
