"""The policy: one module from packed trees to log-probs and entropy.

FSDP2, LoRA and compile wrap this module, so nothing may call parts of the model other than through its forward method
(docs/architecture.md, "Ragged, never padded").
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from rl_core.config.model import ModelConfig
from rl_core.models.loading import banned_token_ids, load_model
from rl_core.models.output_head import BANNED_LOGIT_BIAS, EntropyMode, HeadRows, PolicyOutput, token_log_probs
from rl_core.models.own_logits import body_of, is_head_alone, own_logits
from rl_core.models.packing import PackedTrees
from rl_core.models.sequence_parallel import SequenceParallel, use_sequence_parallel


class PolicyModel(nn.Module):
    """A model of `load_model`, and an output head that computes log-probs, `chunk_tokens` at a time. Banned tokens are
    those that the generator never samples: both lower their logits by the same number."""

    def __init__(self, model: PreTrainedModel, *, banned_token_ids: Sequence[int], chunk_tokens: int) -> None:
        super().__init__()
        self.model = model
        self.chunk_tokens = chunk_tokens
        self._is_head_alone = is_head_alone(model)
        self._sequence_parallel: SequenceParallel | None = None
        logit_bias = torch.zeros(model.get_output_embeddings().weight.shape[0], dtype=torch.float32)
        logit_bias[list(banned_token_ids)] = BANNED_LOGIT_BIAS
        self.logit_bias: torch.Tensor
        self.register_buffer("logit_bias", logit_bias, persistent=False)

    @property
    def config(self) -> PreTrainedConfig:
        """What `pack_trees` needs."""
        return self.model.config

    @property
    def device(self) -> torch.device:
        """The device on which packed trees must be."""
        return self.logit_bias.device

    def share_sequences(self, parallel: SequenceParallel) -> None:
        """From now on compute each packed sequence together with the other ranks of a group, which are given the same
        ones. Raises ValueError if the model's heads cannot be shared equally."""
        use_sequence_parallel(self.model, parallel)
        self._sequence_parallel = parallel

    def forward(
        self,
        packed: PackedTrees,
        *,
        temperature: float,
        entropy: EntropyMode = "none",
        reference: HeadRows | None = None,
    ) -> PolicyOutput:
        """Log-probs of every response token under log_softmax((logits + ban) / temperature), and on request the entropy
        of each token's distribution, as a value or with gradient. With the `head_rows` of a reference for the same
        micro-batch there is the full KL too."""
        parallel = self._sequence_parallel
        output = token_log_probs(
            self._head_rows(packed),
            targets=packed.targets if parallel is None else parallel.own_slice(packed.targets, dim=0),
            temperature=temperature,
            entropy=entropy,
            chunk_tokens=self.chunk_tokens,
            reference=reference,
        )
        return output if parallel is None else output.gathered(parallel, length=len(packed.targets))

    def head_rows(self, packed: PackedTrees) -> HeadRows:
        """The hidden states that predict the response tokens (with sequence parallelism this rank's share of them),
        with this model's head. Like `forward`, this is a whole pass, for which a sharded model gathers its weights."""
        return self._head_rows(packed)

    def _head_rows(self, packed: PackedTrees) -> HeadRows:
        return HeadRows(
            hidden=predicting_states(body_of(self.model), packed, self._sequence_parallel),
            head=self.model.get_output_embeddings() if self._is_head_alone else partial(own_logits, self.model),
            logit_bias=self.logit_bias,
        )


def predicting_states(
    body: PreTrainedModel, packed: PackedTrees, parallel: SequenceParallel | None = None
) -> torch.Tensor:
    """[K, width] the hidden state of the token before each response token; with sequence parallelism, of this rank's
    share."""
    hidden: torch.Tensor = body(
        input_ids=packed.input_ids,
        position_ids=packed.position_ids,
        tree_layout=packed.layout,
        use_cache=False,
        **packed.vision,
    ).last_hidden_state[0]
    index = packed.logit_index if parallel is None else parallel.own_slice(packed.logit_index, dim=0)
    return hidden.index_select(0, index)


def load_policy(folder: Path, config: ModelConfig, *, with_weights: bool = True) -> PolicyModel:
    """The policy of a Hugging Face folder, as `load_model` loads it."""
    return PolicyModel(
        load_model(folder, config, with_weights=with_weights),
        banned_token_ids=banned_token_ids(folder),
        chunk_tokens=config.log_prob_chunk_tokens,
    )
