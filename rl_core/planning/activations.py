"""What the passes of the language model keep, from its sizes. `python -m benchmarks.gpu_memory` measures it."""

from typing import Final

from rl_core.config.run import RunConfig
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.passes import Pass
from rl_core.planning.training_state import BYTES, adapted_layers

LOGIT_COPIES: Final = 3
"""float32 arrays of a chunk's logits that exist at the peak of its backward pass: log-softmax, its gradient, and the
gradient of the logits."""

ENTROPY_COPIES: Final = 2
"""Further ones of an entropy bonus: the exponentials, and their gradient."""

FULL_KL_COPIES: Final = 3
"""Further ones of a full KL: the reference's logits and log-softmax, and the difference of the two models."""

LOGIT_COPIES_WITHOUT_GRADIENT: Final = 2
"""The logits and their log-softmax."""


def layer_numbers(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """Numbers that one layer of the language model keeps of a token for its backward pass.

    The count of Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section 4.1,
    for this kind of layer, and an attention kernel that keeps no score matrix: the arrays of the norms, the four of the
    gated feed-forward, queries and attention output, keys and values.
    """
    feed_forward = 4 * sizes.intermediate_size
    norms = 2 * _norm_copies(config) * sizes.hidden_size
    if sizes.norms_queries:
        norms += (_norm_copies(config) - 1) * (sizes.query_size + sizes.key_value_size)
    return norms + feed_forward + _attention_numbers(config, sizes, passing) + _adapter_numbers(config, sizes)


def _norm_copies(config: RunConfig) -> int:
    """Arrays that a norm keeps, with its output. A trained scale needs the normalised array; in bfloat16 the norm
    computes in float32, which counts twice."""
    kept = 3 if config.model.lora is None else 2
    return kept if config.model.dtype == "float32" else kept + 1


def _attention_numbers(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """Queries, outputs, keys and values. The kernels for bfloat16 take prompts and responses one after the other, which
    costs another array of outputs, and copies of the prompt's keys and values for each response."""
    if config.model.dtype == "float32":
        return 2 * sizes.query_size + 2 * sizes.key_value_size
    return 3 * sizes.query_size + int(2 * (1 + passing.keys) * sizes.key_value_size)


def _adapter_numbers(config: RunConfig, sizes: ModelSizes) -> int:
    """What an adapter keeps between its two matrices."""
    lora = config.model.lora
    return 0 if lora is None else lora.rank * adapted_layers(lora, sizes) // sizes.num_layers


def kept_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """Bytes that the language model keeps of a micro-batch, with the embeddings and the last norm. With checkpointing
    only a layer's input is kept."""
    layer = sizes.hidden_size if config.model.recomputes_activations else layer_numbers(config, sizes, passing)
    return _bytes(config, passing.tokens, sizes.num_layers * layer + _norm_copies(config) * sizes.hidden_size)


def layer_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """Bytes of the layer that is in its backward pass: gradients of three arrays of its feed-forward, in place of the
    one that has been freed, and with checkpointing its arrays, computed again."""
    again = layer_numbers(config, sizes, passing) - sizes.hidden_size if config.model.recomputes_activations else 0
    return _bytes(config, passing.tokens, again + 2 * sizes.intermediate_size + sizes.hidden_size)


def forward_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """Bytes of a pass without a gradient: three arrays of a feed-forward, and the states around it; or the logits."""
    layer = _bytes(config, passing.tokens, 3 * sizes.intermediate_size + 5 * sizes.hidden_size)
    states = _bytes(config, passing.tokens, sizes.hidden_size)
    return max(layer, states + LOGIT_COPIES_WITHOUT_GRADIENT * _logits(config, sizes, passing))


def logit_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """Bytes of the logits of `model.log_prob_chunk_tokens` tokens and of the tensors that are computed from them."""
    full_kl = config.algorithm.kl is not None and config.algorithm.kl.penalty == "full"
    copies = LOGIT_COPIES + (FULL_KL_COPIES if full_kl else 0)
    copies += ENTROPY_COPIES if config.algorithm.entropy_coef > 0.0 else 0
    return copies * _logits(config, sizes, passing)


def chunks(config: RunConfig, passing: Pass) -> int:
    """Chunks of logits of a pass, at the most."""
    return -(-passing.targets // config.model.log_prob_chunk_tokens)


def _logits(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    return 4 * min(config.model.log_prob_chunk_tokens, passing.targets) * sizes.vocab_size


def _bytes(config: RunConfig, tokens: int, numbers: int) -> int:
    """Ranks that share a sequence have a part of its tokens each."""
    return tokens * numbers * BYTES[config.model.dtype] // config.cluster.sequence_parallel_size
