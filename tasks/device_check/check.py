"""What a check of the device is, as data, and what it finds. Loads no torch: each is called in a process of its own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
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


_SECONDS = 600.0
"""Several times what a check of the tiny model takes where vLLM compiles for the first time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What a check is given: an empty folder of its own, on how many devices it may compute (GPUs of this machine, or
    without GPUs processes), and the config whose model is checked, with every default, as a YAML file; None in the
    checks of the tiny model."""

    folder: Path
    devices: int = 1
    config: Path | None = None


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

    name: str
    holds: tuple[str, ...]
    function: str
    advice: str
    devices: int = 1
    seconds: float = _SECONDS


def findings_by(function: str, setting: Setting) -> Iterator[Finding]:
    """Call the function that a check names."""
    module, name, *arguments = function.split(":")
    found: Iterator[Finding] = getattr(import_module(module), name)(setting, *arguments)
    return found
