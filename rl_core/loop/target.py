"""The value of a metric at which a training ends early."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from rl_core.config.training import StopAt
from rl_core.user_code.function import nearest

logger = logging.getLogger(__name__)


class Target:
    """Follows the metric of `trainer.stop_at`; `reached_at` is the step at which it was reached, None before. If steps
    that were done before the value was set have reached it, this is the last of them."""

    def __init__(self, stop_at: StopAt | None, recorded: Iterable[Mapping[str, Any]]) -> None:
        """`recorded` are the metrics of the steps that a run continues from, each with its `step`."""
        self._stop_at = stop_at
        self._streak = 0
        self.reached_at: int | None = None
        for line in recorded:
            self._count(line["step"], line)

    def see(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """Take note of a step. Returns why the training ends, in words; None where it goes on."""
        if self._stop_at is None:
            return None
        metric = self._stop_at.metric
        if step == 1 and metric not in metrics and not metric.startswith("val/"):
            logger.warning("trainer.stop_at.metric: step 1 has no %s%s", metric, nearest(metric, metrics))
        self._count(step, metrics)
        if self.reached_at is None:
            return None
        why = f"{metric} is {metrics[metric]:g} (trainer.stop_at)"
        logger.info("the training ends after step %d: %s", step, why)
        return why

    def _count(self, step: int, metrics: Mapping[str, float]) -> None:
        """The validation before the first step does not count, because no step has a checkpoint yet."""
        if self._stop_at is None or not step:
            return
        if self.reached_at is not None:
            self.reached_at = step
        elif self._stop_at.metric in metrics:
            self._streak = self._streak + 1 if self._stop_at.is_reached(metrics[self._stop_at.metric]) else 0
            self.reached_at = step if self._streak == self._stop_at.patience else None
