"""The switches of the environment that leave out code for a CPU (docs/troubleshooting.md)."""

import os
from typing import Final

CPU_ENGINE: Final = "SIGHTLINE_CPU_ENGINE"
"""Switches rl_core.rollout.cpu, with which vLLM generates on a CPU."""

CPU_MODEL: Final = "SIGHTLINE_CPU_MODEL"
"""Switches rl_core.models.cpu, with which models are trained on a CPU."""


def is_on(switch: str) -> bool:
    """Whether the code is on that a switch stands for. Raises ValueError where the environment says neither."""
    value = os.environ.get(switch, "1")
    if value not in ("0", "1"):
        raise ValueError(f"{switch}={value} in the environment: set it to 0 (off) or 1 (on, as without it)")
    return value == "1"
