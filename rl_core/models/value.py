"""The model of the critic: from packed trees to a value before each response token."""

from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from rl_core.config.model import ModelConfig
from rl_core.models.loading import load_model
from rl_core.models.own_logits import body_of
from rl_core.models.packing import PackedTrees
from rl_core.models.policy import predicting_states
from rl_core.models.sequence_parallel import SequenceParallel, use_sequence_parallel


class ValueModel(nn.Module):
    """The body of a model of `load_model`, and a float32 head with one output in place of its own. The head is
    initialised with zeros, so the values of a new critic are 0, and its first advantages are the returns."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.body = body_of(model)
        self.config: PreTrainedConfig = model.config
        self.head = nn.Linear(model.get_output_embeddings().weight.shape[1], 1, dtype=torch.float32)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self._sequence_parallel: SequenceParallel | None = None

    @property
    def device(self) -> torch.device:
        """The device on which packed trees must be."""
        return self.head.weight.device

    def share_sequences(self, parallel: SequenceParallel) -> None:
        """As `PolicyModel.share_sequences`."""
        use_sequence_parallel(self.body, parallel)
        self._sequence_parallel = parallel

    def forward(self, packed: PackedTrees) -> torch.Tensor:
        """[K] float32, the value before each response token."""
        parallel = self._sequence_parallel
        values: torch.Tensor = self.head(predicting_states(self.body, packed, parallel).float())[:, 0]
        if parallel is None:
            return values
        return parallel.gathered(values, length=len(packed.targets), share_gradients=False)


def load_value_model(folder: Path, config: ModelConfig, *, with_weights: bool = True) -> ValueModel:
    """A new critic on the model of a Hugging Face folder, as `load_model` loads it."""
    return ValueModel(load_model(folder, config, with_weights=with_weights))
