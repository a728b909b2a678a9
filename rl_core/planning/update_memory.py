"""What the trainer's passes take, row by row, each at the moments at which it is there (docs/memory.md).
`python -m benchmarks.gpu_memory` measures it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rl_core.config.run import RunConfig
from rl_core.config.training import CriticConfig, UpdateConfig
from rl_core.planning.batches import longest_sequence, longest_tree
from rl_core.planning.memory_rows import BACKWARD, MemoryRow, Moment
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.training_state import (
    BYTES,
    adapted_layers,
    exchanged_layer_bytes,
    gathered_embedding_bytes,
    gathered_layer_bytes,
    is_sharded,
)

PATCHES_A_TOKEN: Final = 4
"""Patches of an image that become one token, in every family (spatial_merge_size 2)."""

LOGIT_COPIES: Final = 3
"""float32 arrays of a chunk's logits that exist at the peak of its backward pass: log-softmax, its gradient, and the
gradient of the logits."""

ENTROPY_COPIES: Final = 2
"""Further ones of an entropy bonus: the exponentials, and their gradient."""

FULL_KL_COPIES: Final = 3
"""Further ones of a full KL: the reference's logits and log-softmax, and the difference of the two models."""

LOGIT_COPIES_WITHOUT_GRADIENT: Final = 2
"""The logits and their log-softmax."""

MERGER: Final = 6
"""Arrays of the tower's width that the layers keep which join its patches to tokens."""

VISION_FORWARD: Final = 18
"""Arrays of the tower's width that exist at the peak of a pass without a gradient, where queries and keys are rotated
in float32."""

PIECE: Final = 1 << 24
"""Most numbers of a piece (rl_core.training.split_adamw)."""

PIECE_BYTES: Final = 14
"""Bytes of a number of a piece."""

OFFLOADED_PIECE_BYTES: Final = 24
"""The same where moments and lower bits come from the machine's memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """A pass over a micro-batch: its tree tokens, the response tokens of which the output head computes logits, patches
    of images, and the keys that the responses attend to for each tree token: each response has copies of its
    prompt's."""

    tokens: int
    targets: int
    patches: int
    keys: float
    on_gpu: bool


def update_rows(config: RunConfig, sizes: ModelSizes, *, response: int | None, on_gpu: bool) -> Iterator[MemoryRow]:
    """What the passes of an update take in addition to weights and gradients, with responses of `response` tokens.

    A backward pass goes from the output head through the layers to the vision tower, frees on its way what they have
    kept, and at its end adds up the gradients of embedding and head.
    """
    passing = update_pass(config, sizes, config.actor, response=response, on_gpu=on_gpu)
    head, layer, tower, end = BACKWARD
    yield _row("activations of the language model", kept_bytes(config, sizes, passing), head, layer)
    yield _row("activations of the vision tower", vision_kept_bytes(config, sizes, passing), head, layer, tower)
    yield _row("logits of a chunk and gradient of the head", _head_bytes(config, sizes, passing), head)
    yield _row("the layer in its backward pass", layer_bytes(config, sizes, passing), layer)
    yield _row("the block in its backward pass", _vision_block_bytes(config, sizes, passing), tower)
    is_held = sizes.tied_head or is_sharded(config.cluster)
    yield _row("gradient of the head", _held_head_bytes(config, sizes) if is_held else 0, layer, tower)
    yield _row("gathered embeddings", gathered_embedding_bytes(config, sizes), head, layer, tower)
    yield _row("gathered layers", gathered_layer_bytes(config, sizes), head, layer)
    yield _row("gradient of a gathered layer", exchanged_layer_bytes(config, sizes), layer)
    yield _row("gradients of embedding and head", _end_bytes(config, sizes), end)


def _head_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """Logits and the gradient of the chunks before, or that gradient when the one of a chunk is added to it."""
    held = _held_head_bytes(config, sizes) if chunks(config, passing) > 1 else 0
    return max(logit_bytes(config, sizes, passing) + held, _summed_head_bytes(config, sizes))


def reference_rows(config: RunConfig, sizes: ModelSizes, *, response: int | None, on_gpu: bool) -> Iterator[MemoryRow]:
    """What the passes of the reference take, and with LoRA those of the policy without its adapters."""
    if config.algorithm.kl is None:
        return
    passing = _experience_pass(config, sizes, response=response, on_gpu=on_gpu)
    num_bytes = max(_forward_bytes(config, sizes, passing), vision_forward_bytes(config, sizes, passing))
    gathered = gathered_embedding_bytes(config, sizes) + gathered_layer_bytes(config, sizes)
    yield _row("activations of the reference", num_bytes, "pass of the reference")
    yield _row("gathered weights of the reference", gathered, "pass of the reference")


def piece_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of the piece of a parameter that an optimizer step works on (rl_core.training.split_adamw)."""
    lora, is_kept = config.model.lora, config.trainer.offloads == "none"
    if config.model.dtype == "float32" and is_kept:
        return 0
    largest = sizes.vocab_size * sizes.hidden_size if lora is None else lora.rank * sizes.intermediate_size
    return min(PIECE, largest) * (PIECE_BYTES if is_kept else OFFLOADED_PIECE_BYTES)


def critic_pass_bytes(
    config: RunConfig, sizes: ModelSizes, critic: CriticConfig, *, response: int | None, on_gpu: bool
) -> int:
    """Bytes of the passes of a critic, without what it gathers."""
    passing = update_pass(config, sizes, critic, response=response, on_gpu=on_gpu)
    kept = kept_bytes(config, sizes, passing)
    in_layer, in_tower = layer_bytes(config, sizes, passing), _vision_block_bytes(config, sizes, passing)
    return vision_kept_bytes(config, sizes, passing) + max(kept + in_layer, in_tower)


def _row(name: str, num_bytes: int, *moments: Moment) -> MemoryRow:
    return MemoryRow(name=name, num_bytes=num_bytes, moments=moments)


def update_pass(
    config: RunConfig, sizes: ModelSizes, owner: UpdateConfig, *, response: int | None, on_gpu: bool
) -> Pass:
    """The largest pass with a gradient, of policy or critic.

    Its tokens are those of the budget, but no more than all responses to the prompts of an optimizer batch have. With
    responses of `response` tokens there are as many prompts as fit. None stands for the worst of all lengths: the
    shorter responses are, the more images a pass has, and the longer they are, the more logits.
    """
    most_trees = owner.global_batch_size
    tokens = min(longest_sequence(config) * owner.update_sequences, most_trees * longest_tree(config))
    return _largest(config, sizes, tokens, most_trees=most_trees, response=response, on_gpu=on_gpu)


def _experience_pass(config: RunConfig, sizes: ModelSizes, *, response: int | None, on_gpu: bool) -> Pass:
    """The largest pass without a gradient."""
    most_trees = config.data.rollout_batch_size
    tokens = min(longest_sequence(config) * config.actor.experience_sequences, most_trees * longest_tree(config))
    return _largest(config, sizes, tokens, most_trees=most_trees, response=response, on_gpu=on_gpu)


def _largest(
    config: RunConfig, sizes: ModelSizes, tokens: int, *, most_trees: int, response: int | None, on_gpu: bool
) -> Pass:
    """Prompts are taken to be as long as they may be, and to consist of images."""
    prompt, n, shortest = config.longest_prompt, config.rollout.n, response or 1
    trees = min(most_trees, max(1, tokens // (prompt + n * shortest)))
    return Pass(
        tokens=tokens,
        targets=tokens if response is None else min(tokens, trees * n * response),
        patches=trees * prompt * PATCHES_A_TOKEN if sizes.vision_parameters else 0,
        keys=n * (prompt + shortest) / (prompt + n * shortest),
        on_gpu=on_gpu,
    )


def _layer_numbers(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """Numbers that one layer of the language model keeps of a token for its backward pass.

    The count of Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models", section 4.1,
    for this kind of layer, and an attention kernel that keeps no score matrix: the arrays of the norms, the four of the
    gated feed-forward, queries and attention output, keys and values.
    """
    feed_forward = 4 * sizes.intermediate_size
    copies = _norm_copies(config, on_gpu=passing.on_gpu)
    norms = 2 * copies * sizes.hidden_size
    if sizes.norms_queries:
        norms += (copies - 1) * (sizes.query_size + sizes.key_value_size)
    return norms + feed_forward + _attention_numbers(config, sizes, passing) + _adapter_numbers(config, sizes)


def _norm_copies(config: RunConfig, *, on_gpu: bool) -> int:
    """Arrays that an RMS norm keeps, with its output. In float32, Sightline's own on a CPU (rl_core.models.cpu.layers)
    keeps its input. The one of transformers keeps the normalised array too where the scale is trained, and in bfloat16
    it computes in float32, which counts twice."""
    if config.model.dtype == "float32" and not on_gpu:
        return 2
    kept = 3 if config.model.lora is None else 2
    return kept if config.model.dtype == "float32" else kept + 1


def _attention_numbers(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """Queries, outputs, keys and values. In bfloat16 the kernels of a GPU take prompts and responses one after the
    other, which costs another array of outputs, and copies of the prompt's keys and values for each response; on a CPU
    attention is in float32, which counts twice (rl_core.models.cpu.layers), and its output is rounded."""
    numbers = 2 * sizes.query_size + 2 * sizes.key_value_size
    if config.model.dtype == "float32":
        return numbers
    if not passing.on_gpu:
        return 2 * numbers + sizes.query_size
    return 3 * sizes.query_size + int(2 * (1 + passing.keys) * sizes.key_value_size)


def _adapter_numbers(config: RunConfig, sizes: ModelSizes) -> int:
    """What an adapter keeps between its two matrices."""
    lora = config.model.lora
    return 0 if lora is None else lora.rank * adapted_layers(lora, sizes) // sizes.num_layers


def kept_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """Bytes that the language model keeps of a micro-batch, with the embeddings and the last norm. With checkpointing
    only a layer's input is kept."""
    layer = sizes.hidden_size if config.model.recomputes_activations else _layer_numbers(config, sizes, passing)
    last_norm = _norm_copies(config, on_gpu=passing.on_gpu) * sizes.hidden_size
    return _bytes(config, passing.tokens, sizes.num_layers * layer + last_norm)


def layer_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """Bytes of the layer that is in its backward pass: gradients of three arrays of its feed-forward, in place of the
    one that has been freed, and with checkpointing its arrays, computed again."""
    again = _layer_numbers(config, sizes, passing) - sizes.hidden_size if config.model.recomputes_activations else 0
    return _bytes(config, passing.tokens, again + 2 * sizes.intermediate_size + sizes.hidden_size)


def _forward_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tower:
    """Blocks of a vision tower, their width, that of their feed-forward, and whether that is gated."""

    blocks: int
    width: int
    inner: int
    is_gated: bool


def vision_kept_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """Bytes that the vision tower keeps of a micro-batch; 0 where it is not trained and keeps nothing. With
    checkpointing only a block's input is kept."""
    tower = _trained_tower(config, sizes)
    if tower is None:
        return 0
    block = tower.width if config.model.recomputes_activations else _block_numbers(config, tower, on_gpu=passing.on_gpu)
    return _patch_bytes(config, passing, tower.blocks * block + MERGER * tower.width) + _pixel_bytes(
        config, sizes, passing
    )


def _vision_block_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """Bytes of the block that is in its backward pass: as `layer_bytes`."""
    tower = _trained_tower(config, sizes)
    if tower is None:
        return 0
    block = _block_numbers(config, tower, on_gpu=passing.on_gpu)
    again = block - tower.width if config.model.recomputes_activations else 0
    gradients = (2 if tower.is_gated else 1) * tower.inner + tower.width
    return _patch_bytes(config, passing, again + gradients)


def vision_forward_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass, *, copies: int = VISION_FORWARD) -> int:
    """Bytes of a pass without a gradient, with so many arrays of the tower's width at its peak."""
    tower = _tower(sizes)
    if tower is None:
        return 0
    return _patch_bytes(config, passing, copies * tower.width) + _pixel_bytes(config, sizes, passing)


def _trained_tower(config: RunConfig, sizes: ModelSizes) -> _Tower | None:
    is_trained = config.model.lora is None and not config.model.freeze_vision_tower
    return _tower(sizes) if is_trained else None


def _block_numbers(config: RunConfig, tower: _Tower, *, on_gpu: bool) -> int:
    """Numbers that a block keeps of a patch: queries, keys and values, the rotated queries and keys, the attention's
    output, the arrays of the feed-forward, and those of two norms. A gated tower has RMS norms, the others have
    LayerNorm."""
    norm = _norm_copies(config, on_gpu=on_gpu) if tower.is_gated else 2
    return (2 * norm + 6) * tower.width + (4 if tower.is_gated else 2) * tower.inner


def _pixel_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """The patches themselves in float32, and in the model's number format."""
    return passing.patches * sizes.patch_numbers * (4 + (2 if config.model.dtype == "bfloat16" else 0))


def _patch_bytes(config: RunConfig, passing: Pass, numbers: int) -> int:
    return passing.patches * numbers * BYTES[config.model.dtype]


def _tower(sizes: ModelSizes) -> _Tower | None:
    if not sizes.vision_blocks:
        return None
    return _Tower(
        blocks=sizes.vision_blocks,
        width=sizes.vision_width,
        inner=sizes.vision_intermediate_size,
        is_gated=sizes.gated_vision,
    )


def _held_head_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes of the head's gradient of the chunks so far; 0 where the head is not trained. It is held to the end of the
    backward pass where the head is the embedding or a worker has a shard of it."""
    return _head_weights(config, sizes) * _gradient_bytes(config)


def _summed_head_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes where the gradient of a chunk is added to it: a product, and the product in the gradient's format."""
    number, gradient = BYTES[config.model.dtype], _gradient_bytes(config)
    return _head_weights(config, sizes) * (gradient + number + (gradient if gradient != number else 0))


def _end_bytes(config: RunConfig, sizes: ModelSizes) -> int:
    """Bytes at the end of a backward pass. Over shards these are the gradients of embedding and head as a whole, and
    their copies in float32 that are added up over the workers; otherwise that of the embedding as in a chunk."""
    if is_sharded(config.cluster):
        matrices = 1 if sizes.tied_head else 2
        return matrices * _head_weights(config, sizes) * (BYTES[config.model.dtype] + BYTES["float32"])
    return _summed_head_bytes(config, sizes)


def _head_weights(config: RunConfig, sizes: ModelSizes) -> int:
    return sizes.vocab_size * sizes.hidden_size if config.model.lora is None else 0


def _gradient_bytes(config: RunConfig) -> int:
    """Bytes of a number: float32, except in pure bfloat16, and over shards before the workers' are added up."""
    is_pure = config.actor.optim.strategy == "adamw_bf16"
    return BYTES[config.model.dtype] if is_pure or is_sharded(config.cluster) else BYTES["float32"]
