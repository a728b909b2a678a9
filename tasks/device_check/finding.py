"""What a check of the device has found."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

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
