"""What a check of the device has found."""

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "fails", "measured", "not applicable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One row of the table.

    Attributes:
        check: What was checked.
        verdict: "measured" for a figure that is neither right nor wrong; "not applicable" where this device cannot
            show it.
        measured: The figures, or why there are none.
        advice: What to set or to look for; empty if there is nothing to do.
    """

    check: str
    verdict: Verdict
    measured: str
    advice: str = ""


def compared(check: str, *, holds: bool, measured: str, advice: str) -> Finding:
    """A finding that is ok or fails; the advice is for a failure."""
    return Finding(check=check, verdict="ok" if holds else "fails", measured=measured, advice="" if holds else advice)
