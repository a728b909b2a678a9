"""Trackers that are asked for and cannot be had on this machine."""

import importlib.util

from rl_core.config.run import RunConfig
from rl_core.planning.problem import Problem


def tracker_problems(config: RunConfig) -> list[Problem]:
    """Trackers whose library is not installed."""
    tracking = config.tracking
    asked = {"tensorboard": tracking.tensorboard, "wandb": tracking.wandb is not None, "swanlab": tracking.swanlab}
    return [
        Problem(
            where=f"tracking.{library}",
            what=f"the package {library} is not installed",
            fix=f".venv/bin/pip install -c constraints.txt -e '.[trackers]', or turn tracking.{library} off",
        )
        for library, is_asked in asked.items()
        if is_asked and importlib.util.find_spec(library) is None
    ]
