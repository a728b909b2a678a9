"""What a check of the device is, as data. Loads no torch: a check is called in a process of its own."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from tasks.device_check.finding import Finding

_SECONDS = 600.0
"""Several times what a check of the tiny model takes where vLLM compiles for the first time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What a check is given.

    Attributes:
        folder: An empty folder of its own.
        devices: On how many devices it may compute: GPUs of this machine, or without GPUs processes.
        config: The config whose model is checked, with every default, as a YAML file; None in the checks of the tiny
            model.
    """

    folder: Path
    devices: int = 1
    config: Path | None = None

    def to_json(self) -> str:
        """The setting as a text for another process."""
        config = None if self.config is None else str(self.config)
        return json.dumps({"folder": str(self.folder), "devices": self.devices, "config": config})

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The setting of `to_json`."""
        fields: dict[str, Any] = json.loads(text)
        config = fields["config"]
        return cls(folder=Path(fields["folder"]), devices=fields["devices"], config=config and Path(config))


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One check.

    Attributes:
        name: Its name in messages and files.
        holds: What must hold, in the order in which it is found; a function that names its findings by what it meets,
            such as number formats, has one text here.
        function: `module:name` of a function from a Setting to Findings.
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


def function_of(name: str) -> Callable[[Setting], Iterator[Finding]]:
    """The function that a check names as `module:name`."""
    module, _, function = name.partition(":")
    found: Callable[[Setting], Iterator[Finding]] = getattr(import_module(module), function)
    return found
