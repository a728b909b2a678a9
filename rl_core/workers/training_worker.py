"""A worker that only trains, and sends its weights to workers that generate."""

from collections import deque
from collections.abc import Iterable

import torch

from rl_core.workers.local_worker import LocalWorker
from rl_core.workers.weight_link import LinkPlace, WeightLink


class TrainingWorker(LocalWorker):
    """A LocalWorker whose generator never starts. The first rank sends the weights, which all ranks gather."""

    _link: WeightLink | None = None

    def join_link(self, place: LinkPlace) -> None:
        """Meet the workers that receive the weights; ranks but the first have nobody to meet."""
        if self.ranks.is_first:
            self._link = WeightLink(place, self.trainer.device)

    def send_weights(self) -> None:
        """Send the policy's weights; without its adapters, if generators get them separately."""
        self._send(self.trainer.named_weights())

    def send_adapters(self) -> None:
        """Send the policy's adapters."""
        self._send(self.trainer.named_adapters())

    def _send(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        with self._meter.time.at("sync"):
            if self._link is None:
                deque(weights, maxlen=0)
            else:
                self._link.send(weights)
