"""What a check of the device is, as data, and what it finds. Loads no torch: each is called in a process of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from rl_core.planning.memory_rows import MemoryForecast, Phase

Verdict = Literal["ok", "fails", "measured", "not checked"]

Figures = Mapping[str, float | str]
"""Numbers and names for a program that reads the findings; docs/gpu.md says what they are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One row of the table.

    Attributes:
        check: What must hold.
        verdict: "measured" for a figure that is neither right nor wrong; "not checked" where this device cannot show
            it, or a check broke off before.
        measured: The figures, or why there are none.
        advice: What to set or to look for; empty if there is nothing to do.
        figures: What was measured, for a program.
        log: The last lines of the check's process, where it broke off.
    """

    check: str
    verdict: Verdict
    measured: str
    advice: str = ""
    figures: Figures = field(default_factory=dict)
    log: str = ""


def compared(check: str, *, holds: bool, measured: str, advice: str, figures: Figures | None = None) -> Finding:
    """A finding that is ok or fails; the advice is for a failure."""
    return Finding(
        check=check,
        verdict="ok" if holds else "fails",
        measured=measured,
        advice="" if holds else advice,
        figures=figures or {},
    )


def not_checked(check: str, why: str) -> Finding:
    """A finding that says why there is none."""
    return Finding(check=check, verdict="not checked", measured=why)


_SECONDS = 600.0
"""Several times what a check of the tiny model takes where vLLM compiles for the first time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What a check is given: an empty folder of its own, on how many devices it may compute (GPUs of this machine, or
    without GPUs processes), and the config whose model is checked, with every default, as a YAML file; None in the
    checks of the tiny model, or of `model`, the folder of another small one; and the family of it (`model.family`), if
    that is none of Sightline."""

    folder: Path
    devices: int = 1
    config: Path | None = None
    model: Path | None = None
    family: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One check.

    Attributes:
        holds: What must hold, in the order in which it is found; a function that names its findings by what it meets,
            such as number formats, has one text here.
        function: `module:name` of a function from a Setting to Findings, or `module:name:argument` of one that has a
            text as further argument.
        advice: What to set where its process breaks off.
        devices: Fewest devices with which it can be made.
        seconds: How long its process may take.
    """

    holds: tuple[str, ...]
    function: str
    advice: str
    devices: int = 1
    seconds: float = _SECONDS

    @property
    def name(self) -> str:
        """The function's name with its argument, such as `agreement float32`."""
        return " ".join(self.function.split(":", 2)[1:]).replace("_findings", "")


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
        return Finding(check=check, verdict="not checked", measured="this system does not report the peak of a process")
    rows = {row.name: row.gib for row in (*forecast.rows_of("always"), *forecast.rows_of(phase))}
    figures: dict[str, float | str] = {f"forecast: {row}, GiB": gib for row, gib in rows.items()}
    figures |= {f"peak: {key}": gib for key, gib in peaks.items()}
    largest = sorted(rows, key=lambda row: -rows[row])[:3]
    parts = ", ".join(f"{row} {rows[row]:.2f}" for row in largest)
    return against_plan(
        check,
        peaks[name],
        forecast.phase_gib(phase),
        note=f"; largest rows: {parts}",
        advice=f"a run may not fit: {_KEYS[phase]}",
        figures=figures,
    )


def against_plan(
    check: str,
    measured: float,
    planned: float,
    *,
    advice: str,
    note: str = "",
    figures: Figures | None = None,
) -> Finding:
    """Compare GiB with the plan: it fails where more is taken than planned, and is measured where it is less."""
    share = measured / planned if planned else float("inf")
    shown = f"{measured:.2f} GiB against {planned:.2f} in the plan ({share:.0%}){note}"
    figures = {"measured": measured, "planned": planned, **(figures or {})}
    if share > 1 + TOLERANCE:
        return Finding(check=check, verdict="fails", measured=shown, advice=advice, figures=figures)
    if share < 1 - TOLERANCE:
        cautious = "the plan is too cautious here, which may cost speed: send device.json"
        return Finding(check=check, verdict="measured", measured=shown, advice=cautious, figures=figures)
    return Finding(check=check, verdict="ok", measured=shown, figures=figures)
