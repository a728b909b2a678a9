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
        self._synced_frozen: int | None = None

    def sync(self) -> None:
        """See WeightSync."""
        trainer, generator = self._trainer, self._generator
        holds_them = generator.policy_version == trainer.policy_version
        if holds_them and self._synced_changes == trainer.weight_changes:
            return
        version = trainer.policy_version
        if not (trainer.sends_adapters and self._has_frozen_weights):
            generator.load_weights(trainer.named_weights(), policy_version=version)
            self._synced_frozen = trainer.frozen_changes
        if trainer.sends_adapters:
            generator.load_adapters(trainer.named_adapters(), policy_version=version)
        self._synced_changes = trainer.weight_changes

    @property
    def _has_frozen_weights(self) -> bool:
        """Whether the generator has the weights that RL does not train."""
        return self._generator.has_weights and self._synced_frozen == self._trainer.frozen_changes
