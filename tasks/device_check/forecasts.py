"""What was measured, compared with the plan: memory."""

from collections.abc import Mapping
from typing import Final

from rl_core.planning.memory_rows import MemoryForecast, Phase
from tasks.device_check.check import Figures, Finding

TOLERANCE: Final = 0.1
"""Share by which a forecast may be off."""

_KEYS: Final[Mapping[Phase, str]] = {
    "generate": "lower rollout.gpu_memory_utilization or rollout.max_num_seqs",
    "update": "set model.gradient_checkpointing: true, then trainer.offload: optimizer, or lower "
    "actor.micro_batch_size_per_device_for_update",
    "save": "set trainer.async_save: false",
}


def peak_against_plan(check: str, phase: Phase, *, peaks: Mapping[str, float], forecast: MemoryForecast) -> Finding:
    """Whether the peak of a phase is what the plan says, with the rows of the plan."""
    on_gpu = bool(forecast.host_rows)
    name = f"{phase}_gpu_used_gib" if on_gpu else f"{phase}_peak_gib"
    if name not in peaks:
        return Finding(check=check, verdict="not checked", measured="this system does not tell a process its peak")
    rows = {row.name: row.gib for row in (*forecast.rows_of("always"), *forecast.rows_of(phase))}
    figures: dict[str, float | str] = {f"forecast: {row}, GiB": gib for row, gib in rows.items()}
    figures |= {f"peak: {key}": gib for key, gib in peaks.items()}
    largest = sorted(rows, key=lambda row: -rows[row])[:3]
    parts = ", ".join(f"{row} {rows[row]:.2f}" for row in largest)
    return against_plan(
        check,
        peaks[name],
        forecast.phase_gib(phase),
        unit="GiB",
        note=f"; largest rows: {parts}",
        advice=f"a run may not fit: {_KEYS[phase]}",
        figures=figures,
    )


def against_plan(
    check: str,
    measured: float,
    planned: float,
    *,
    unit: str,
    advice: str,
    note: str = "",
    figures: Figures | None = None,
) -> Finding:
    """Compare a figure with the plan: it fails where more is taken than planned, and is measured where it is less."""
    share = measured / planned if planned else float("inf")
    shown = f"{measured:.2f} {unit} beside {planned:.2f} in the plan ({share:.0%}){note}"
    figures = {"measured": measured, "planned": planned, **(figures or {})}
    if share > 1 + TOLERANCE:
        return Finding(check=check, verdict="fails", measured=shown, advice=advice, figures=figures)
    if share < 1 - TOLERANCE:
        cautious = "the plan is too cautious here, which may cost speed: send device.json"
        return Finding(check=check, verdict="measured", measured=shown, advice=cautious, figures=figures)
    return Finding(check=check, verdict="ok", measured=shown, figures=figures)
