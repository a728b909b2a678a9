"""What the trainer's passes take, row by row, each at the moments at which it is there."""

from collections.abc import Iterator
from typing import Final

from rl_core.config.run import RunConfig
from rl_core.config.training import CriticConfig
from rl_core.planning.activations import chunks, forward_bytes, kept_bytes, layer_bytes, logit_bytes
from rl_core.planning.memory_rows import BACKWARD, MemoryRow, Moment
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.output_head import end_bytes, held_head_bytes, summed_head_bytes
from rl_core.planning.passes import Pass, experience_pass, update_pass
from rl_core.planning.shards import exchanged_layer_bytes, gathered_embedding_bytes, gathered_layer_bytes, is_sharded
from rl_core.planning.vision_activations import vision_block_bytes, vision_forward_bytes, vision_kept_bytes

PIECE: Final = 1 << 24
"""Most numbers of a piece (rl_core.training.split_adamw)."""

PIECE_BYTES: Final = 14
"""Bytes of a number of a piece, measured by `python -m benchmarks.gpu_memory`."""

OFFLOADED_PIECE_BYTES: Final = 24
"""The same where moments and lower bits come from the machine's memory."""


def update_rows(config: RunConfig, sizes: ModelSizes, *, response: int | None) -> Iterator[MemoryRow]:
    """What the passes of an update take beside weights and gradients, with responses of `response` tokens.

    A backward pass goes from the output head through the layers to the vision tower, frees on its way what they have
    kept, and at its end adds up the gradients of embedding and head.
    """
    passing = update_pass(config, sizes, config.actor, response=response)
    head, layer, tower, end = BACKWARD
    yield _row("activations of the language model", kept_bytes(config, sizes, passing), head, layer)
    yield _row("activations of the vision tower", vision_kept_bytes(config, sizes, passing), head, layer, tower)
    yield _row("logits of a chunk and gradient of the head", _head_bytes(config, sizes, passing), head)
    yield _row("the layer in its backward pass", layer_bytes(config, sizes, passing), layer)
    yield _row("the block in its backward pass", vision_block_bytes(config, sizes, passing), tower)
    is_held = sizes.tied_head or is_sharded(config.cluster)
    yield _row("gradient of the head", held_head_bytes(config, sizes) if is_held else 0, layer, tower)
    yield _row("gathered embeddings", gathered_embedding_bytes(config, sizes), head, layer, tower)
    yield _row("gathered layers", gathered_layer_bytes(config, sizes), head, layer)
    yield _row("gradient of a gathered layer", exchanged_layer_bytes(config, sizes), layer)
    yield _row("gradients of embedding and head", end_bytes(config, sizes), end)


def _head_bytes(config: RunConfig, sizes: ModelSizes, passing: Pass) -> int:
    """Logits beside the gradient of the chunks before, or that gradient when the one of a chunk is added to it."""
    held = held_head_bytes(config, sizes) if chunks(config, passing) > 1 else 0
    return max(logit_bytes(config, sizes, passing) + held, summed_head_bytes(config, sizes))


def reference_rows(config: RunConfig, sizes: ModelSizes, *, response: int | None) -> Iterator[MemoryRow]:
    """What the passes of the reference take, and with LoRA those of the policy without its adapters."""
    if config.algorithm.kl is None:
        return
    passing = experience_pass(config, sizes, response=response)
    num_bytes = max(forward_bytes(config, sizes, passing), vision_forward_bytes(config, sizes, passing))
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


def critic_pass_bytes(config: RunConfig, sizes: ModelSizes, critic: CriticConfig, *, response: int | None) -> int:
    """Bytes of the passes of a critic, without what it gathers."""
    passing = update_pass(config, sizes, critic, response=response)
    kept = kept_bytes(config, sizes, passing)
    in_layer, in_tower = layer_bytes(config, sizes, passing), vision_block_bytes(config, sizes, passing)
    return vision_kept_bytes(config, sizes, passing) + max(kept + in_layer, in_tower)


def _row(name: str, num_bytes: int, *moments: Moment) -> MemoryRow:
    return MemoryRow(name=name, num_bytes=num_bytes, moments=moments)
