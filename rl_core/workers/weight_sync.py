"""The transfer of weights from the trainer to the generator."""

from typing import Protocol

from rl_core.rollout.generator import Generator
from rl_core.training.trainer import Trainer


class WeightSync(Protocol):
    """How the generator gets the trainer's weights, wherever the two are."""

    def sync(self) -> None:
        """Give the generator, which must be awake, the trainer's weights and their version, unless it has them."""


class InProcessSync:
    """A WeightSync for a trainer and a generator in one process."""

    def __init__(self, trainer: Trainer, generator: Generator) -> None:
        self._trainer = trainer
        self._generator = generator
        self._synced_changes: int | None = None

    def sync(self) -> None:
        """See WeightSync."""
        trainer, generator = self._trainer, self._generator
        holds_them = generator.policy_version == trainer.policy_version
        if holds_them and self._synced_changes == trainer.weight_changes:
            return
        generator.load_weights(trainer.named_weights(), policy_version=trainer.policy_version)
        self._synced_changes = trainer.weight_changes
