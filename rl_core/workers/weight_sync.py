"""How the trainer's weights come to the generator."""

from typing import Protocol

from rl_core.rollout.generator import Generator
from rl_core.training.trainer import Trainer


class WeightSync(Protocol):
    """Brings the weights of one trainer to one generator."""

    def sync(self) -> None:
        """Afterwards the generator, which is awake, has the trainer's weights and their version; where it has them
        already, nothing moves."""


class InProcessSync:
    """Hands over the tensors of a trainer in the same process."""

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
