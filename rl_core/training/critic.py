"""A worker's critic: the value model with its optimizer, and how both are saved in a checkpoint."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rl_core.checkpoints.host_copy import HostCopies
from rl_core.config.run import RunConfig
from rl_core.config.training import CriticConfig
from rl_core.distributed.ranks import LONE, Ranks
from rl_core.files import read_json
from rl_core.models.pixels import PixelCache
from rl_core.models.value import ValueModel
from rl_core.planning.batches import longest_sequence, optimizer_steps_per_step
from rl_core.training.batches import OptimizerBatch, OptimizerStepReport
from rl_core.training.host_memory import HostWeights
from rl_core.training.log_prob_pass import compute_values
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.training.saved_model import ModuleState, load_optimizer, load_weights
from rl_core.training.value_update import ValueUpdate
from rl_core.types import Float32Array, Group


class Critic:
    """Estimates the values of tokens, and learns from the returns; `total_steps` are the optimizer steps of the run."""

    def __init__(
        self,
        model: ValueModel,
        *,
        config: RunConfig,
        critic: CriticConfig,
        pixels: PixelCache,
        total_steps: int,
        ranks: Ranks = LONE,
    ) -> None:
        self._model = model
        self._ranks = ranks
        self._config = critic
        self._pixels = pixels
        self._experience_budget = critic.experience_sequences * longest_sequence(config)
        self._optimizer = PolicyOptimizer(
            model,
            config=critic.optim,
            max_grad_norm=critic.max_grad_norm,
            total_steps=total_steps,
            steps_at_once=optimizer_steps_per_step(config, critic),
            in_host_memory=config.trainer.offloads != "none",
        )
        self._weights = HostWeights(model) if config.trainer.offloads == "all" else None
        self._update = ValueUpdate(
            model,
            optimizer=self._optimizer,
            pixels=pixels,
            config=critic,
            token_budget=critic.update_sequences * longest_sequence(config),
            ranks=ranks,
        )

    @property
    def nonfinite_streak(self) -> int:
        """Optimizer steps in a row, up to now, that were skipped because of a non-finite gradient."""
        return self._optimizer.nonfinite_streak

    def values(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] the value before each token."""
        with self._on_device():
            return compute_values(
                self._model,
                groups,
                pixels=self._pixels,
                token_budget=self._experience_budget,
                ranks=self._ranks,
            )

    def update(self, batches: Sequence[OptimizerBatch]) -> list[OptimizerStepReport]:
        """One optimizer step for each batch."""
        with self._on_device():
            return self._update.run(batches)

    def _on_device(self) -> AbstractContextManager[None]:
        return nullcontext() if self._weights is None else self._weights.on_device()

    def state(self, *, model_only: bool, copies: HostCopies | None) -> tuple[ModuleState, Mapping[str, int]]:
        """What a checkpoint holds, and the counters."""
        state = ModuleState.of(self._model, self._optimizer, trained_only=False, model_only=model_only, copies=copies)
        return state, self._optimizer.counters()

    def load(self, folder: Path, *, model_only: bool) -> None:
        """Load model, optimizer and counters, equal to the bit. With `model_only`, the moments start from zero. Raises
        MismatchedState as `load_sharded`."""
        with self._ranks.succeed_together():
            counters = read_json(folder / "counters.json")
        moments = None if model_only else folder / "optimizer"
        with self._on_device():  # the optimizer's state is placed by the parameters that it belongs to
            group = self._ranks.checkpoint_group
            lower_bits = load_weights(folder / "model", self._model, trained_only=False, process_group=group)
            load_optimizer(
                moments,
                self._model,
                self._optimizer,
                lower_bits=lower_bits,
                counters=counters,
                process_group=group,
            )
