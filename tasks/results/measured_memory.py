"""The most memory that a run took, from its timings, beside which its forecast is shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from rl_core.planning.gpu import Gpu
from rl_core.planning.memory_rows import Phase
from rl_core.records.metrics_log import SETTINGS_EVENT, read
from rl_core.run_directory import RunDirectory


def measured_peaks(run: RunDirectory, *, on_gpu: bool) -> Mapping[str, float]:
    """[phase] -> GiB, the most of all steps so far: of the GPU as the driver counts it, or of the process of the run.
    Empty for a run that has not begun, or whose version measured nothing."""
    ending = "gpu_used_gib" if on_gpu else "peak_gib"
    names = {phase: f"{phase}_{ending}" for phase in get_args(Phase)}
    peaks: dict[str, float] = {}
    for record in read(run.timings):
        for phase, name in names.items():
            if name in record:
                peaks[phase] = max(record[name], peaks.get(phase, 0.0))
    return peaks


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedMachine:
    """The machine that a run was on last: its GPU, and whether that is known."""

    gpu: Gpu | None = None
    is_known: bool = True

    @property
    def on_gpu(self) -> bool:
        """Whether it has a GPU."""
        return self.gpu is not None


def recorded_machine(run: RunDirectory) -> RecordedMachine:
    """The machine of the last settings that a run recorded. A run whose settings are all in its config records none;
    then it was on a GPU if it measured one's memory, whose size is not known."""
    events = [event for event in read(run.events) if event["kind"] == SETTINGS_EVENT]
    if not events:
        measured_gpu = bool(measured_peaks(run, on_gpu=True))
        return RecordedMachine(gpu=Gpu(memory_gib=None) if measured_gpu else None, is_known=not measured_gpu)
    last = events[-1]
    gpu = Gpu(memory_gib=last["gpu_gib"]) if last["on_gpu"] else None
    return RecordedMachine(gpu=gpu, is_known=gpu is None or gpu.memory_gib is not None)
