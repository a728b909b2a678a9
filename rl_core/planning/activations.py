"""What forward and backward passes keep in memory, from the sizes of a model."""

import re
from functools import lru_cache
from typing import Final

from rl_core.config.run import RunConfig
from rl_core.config.training import ActorConfig, CriticConfig, experience_sequences, update_sequences
from rl_core.planning.batches import longest_sequence
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.training_state import BYTES

LOGIT_COPIES: Final = 4.5
"""float32 arrays of a chunk's logits that exist at the peak of its backward pass: log-softmax, its gradient, the
gradient of the logits, exponentials of the entropy, and the head's output in the model's number format (half)."""

FULL_KL_COPIES: Final = 3
"""Further ones of a full KL: the reference's logits and log-softmax, and the difference of the two models."""

PATCHES_A_TOKEN: Final = 4
"""Patches of an image that become one token, in every family (spatial_merge_size 2)."""

_VISION_BLOCK: Final = re.compile(r"model\.visual\.blocks\.(\d+)\.")


def update_tokens(config: RunConfig, owner: ActorConfig | CriticConfig) -> int:
    """Most tree tokens of a pass with a gradient: the budget, but no more than all responses to the prompts of an
    optimizer batch."""
    prompt, response = config.data.max_prompt_length, config.rollout.max_response_length
    whole = owner.global_batch_size * (prompt + config.rollout.n * response)
    return min(longest_sequence(config) * update_sequences(owner), whole)


def layer_numbers(sizes: ModelSizes) -> int:
    """Numbers that one layer of the language model keeps of a token for its backward pass.

    These are the inputs of its norms and projections (4 x width), queries and attention output, keys and values, and
    the four arrays of the gated feed-forward: the count of Korthikanti et al. 2022, "Reducing Activation Recomputation
    in Large Transformer Models", section 4.1, for this kind of layer and an attention kernel that keeps no score
    matrix.
    """
    return 4 * sizes.hidden_size + 2 * sizes.query_size + 2 * sizes.key_value_size + 4 * sizes.intermediate_size


def activation_bytes(config: RunConfig, sizes: ModelSizes, owner: ActorConfig | CriticConfig) -> int:
    """Bytes that the language model of policy or critic keeps of a micro-batch. With checkpointing only a layer's input
    is kept."""
    numbers = sizes.hidden_size if config.model.recomputes_activations else layer_numbers(sizes)
    return update_tokens(config, owner) * sizes.num_layers * numbers * BYTES[config.model.dtype]


def layer_bytes(config: RunConfig, sizes: ModelSizes, owner: ActorConfig | CriticConfig) -> int:
    """Bytes of the layer that is in its backward pass: the gradients of its arrays, and with checkpointing the arrays
    themselves, computed again."""
    layers = 2 if config.model.recomputes_activations else 1
    return update_tokens(config, owner) * layers * layer_numbers(sizes) * BYTES[config.model.dtype]


def experience_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of a pass without a gradient: one layer's arrays, of which half are freed before the others exist."""
    tokens = longest_sequence(config) * experience_sequences(config.actor)
    return tokens * (layer_numbers(sizes) // 2 + sizes.hidden_size) * BYTES[config.model.dtype]


def vision_bytes(config: RunConfig, sizes: ModelSizes, owner: ActorConfig | CriticConfig) -> int:
    """Bytes that the vision tower keeps of a micro-batch; 0 where it is not trained and keeps nothing.

    A block keeps the inputs and outputs of its linear layers, which is within a tenth of the count of `layer_numbers`
    for it. The prompts of whole groups are taken to consist of images.
    """
    blocks = _block_numbers(sizes)
    is_trained = config.model.lora is None and not config.model.freeze_vision_tower
    if not blocks or not is_trained:
        return 0
    prompt, response = config.data.max_prompt_length, config.rollout.max_response_length
    trees = max(1, update_tokens(config, owner) // (prompt + config.rollout.n * response))
    block = max(blocks.values())
    # With checkpointing a block's input, a tenth of what it keeps, and two blocks as a whole.
    numbers = len(blocks) * block // 10 + 2 * block if config.model.recomputes_activations else sum(blocks.values())
    return trees * prompt * PATCHES_A_TOKEN * numbers * BYTES[config.model.dtype]


def logit_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of the logits of `model.log_prob_chunk_tokens` tokens and of the tensors that are computed from them."""
    full_kl = config.algorithm.kl is not None and config.algorithm.kl.penalty == "full"
    copies = LOGIT_COPIES + (FULL_KL_COPIES if full_kl else 0)
    tokens = min(config.model.log_prob_chunk_tokens, update_tokens(config, config.actor))
    return int(copies * 4 * tokens * sizes.vocab_size)


def _block_numbers(sizes: ModelSizes) -> dict[str, int]:
    """[number of a block of the vision tower] -> numbers that it keeps of a patch."""
    layers = sizes.linear_layers
    return {block: sum(layers[name] for name in names) for block, names in _block_names(tuple(layers)).items()}


@lru_cache(maxsize=64)
def _block_names(names: tuple[str, ...]) -> dict[str, list[str]]:
    """[number of a block of the vision tower] -> its linear layers. Kept, because a plan makes hundreds of forecasts
    for the layers of one model."""
    blocks: dict[str, list[str]] = {}
    for name in names:
        if (match := _VISION_BLOCK.match(name)) is not None:
            blocks.setdefault(match[1], []).append(name)
    return blocks
