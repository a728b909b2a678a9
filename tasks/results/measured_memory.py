"""The most memory that a run took, from its timings, with which its forecast is compared."""

from collections.abc import Mapping
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


def recorded_machine(run: RunDirectory) -> tuple[Gpu | None, bool]:
    """The GPU of the machine of the last settings that a run recorded (None: a CPU), and whether that is known. A run
    whose settings are all in its config records none; then it was on a GPU if it measured one's memory, whose size is
    not known."""
    events = [event for event in read(run.events) if event["kind"] == SETTINGS_EVENT]
    if not events:
        measured_gpu = bool(measured_peaks(run, on_gpu=True))
        return (Gpu(memory_gib=None), False) if measured_gpu else (None, True)
    gpu = Gpu(memory_gib=events[-1]["gpu_gib"]) if events[-1]["on_gpu"] else None
    return gpu, gpu is None or gpu.memory_gib is not None
