"""Ulysses sequence parallelism: the ranks of a group compute one packed sequence together (Jacobs et al. 2023,
arXiv:2309.14509).

Outside of attention each rank has a slice of the tokens with all heads; inside, it has all tokens with a share of the
heads. Two exchanges in each layer change between the two. Embeddings, vision features and position ids are made of the
whole sequence on every rank and sliced after that, so a slice may begin anywhere, in the middle of an image too. The
output head computes a share of the response tokens on each rank.

Every rank gets the same micro-batch and computes the same loss. Its gradient is a part of the whole gradient: the parts
of the ranks add up to it.

Letters: S ranks; T packed tokens, padded to a multiple of S for the slices; H query heads, G key/value heads, D head
size; K response tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.nn.functional import pad
from transformers import PreTrainedModel
from transformers.modeling_outputs import ModelOutput

from rl_core.models.tree_recurrence import carries_state
from rl_core.planning.meta_model import heads_of_layers
from rl_core.planning.model_sizes import NO_SHARED_STATE, why_not_shared

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceParallel:
    """The ranks that share a sequence, and which of them this one is."""

    group: ProcessGroup
    rank: int
    size: int

    @classmethod
    def of(cls, group: ProcessGroup) -> "SequenceParallel":
        """This rank's place in a process group."""
        return cls(group=group, rank=dist.get_rank(group), size=dist.get_world_size(group))

    def own_slice(self, states: torch.Tensor, *, dim: int) -> torch.Tensor:
        """This rank's tokens: [..., T, ...] -> [..., ceil(T / S), ...]. What the last slice lacks is filled with 0."""
        length = states.shape[dim]
        width = _slice_width(length, self.size)
        begin = min(self.rank * width, length)
        own = states.narrow(dim, begin, min(width, length - begin))
        missing = width - own.shape[dim]
        after = states.dim() - 1 - dim % states.dim()
        return pad(own, (0, 0) * after + (0, missing)) if missing else own

    def gathered(self, own: torch.Tensor, *, length: int, share_gradients: bool) -> torch.Tensor:
        """The slices of all ranks, [W, ...] each -> [length, ...]. With `share_gradients` each rank computes another
        part of the loss from the result, so that the gradients of all ranks are added. Otherwise all compute the same
        loss, and each takes the gradient of its slice."""
        whole: torch.Tensor = _Gather.apply(own, self, share_gradients)  # type: ignore[no-untyped-call]
        return whole[:length]

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, length: int, attend: Attend
    ) -> torch.Tensor:
        """Attention over all `length` tokens, computed by each rank for a share of the heads: [T / S, H, D] and twice
        [T / S, G, D] of each rank -> [T / S, H, D]. `attend` takes a whole sequence: [T, h, D], twice [T, g, D]."""
        key, value = (self._with_enough_heads(states) for states in (key, value))
        heads = [states.shape[1] // self.size for states in (query, key, value)]
        # [S, T / S, (H + 2 G) / S, D]: the heads that each rank computes.
        sent = torch.cat([_by_rank(states, self.size) for states in (query, key, value)], dim=2)
        received = self._exchanged(sent).flatten(0, 1)[:length]
        out = attend(*torch.split(received, heads, dim=1))
        width = _slice_width(length, self.size)
        padded = pad(out, (0, 0, 0, 0, 0, self.size * width - length))
        returned = self._exchanged(padded.view(self.size, width, heads[0], -1))
        return returned.transpose(0, 1).flatten(1, 2)

    def own_heads(self, of_heads: torch.Tensor) -> torch.Tensor:
        """Of one number for each query head, [H], those of the heads that this rank computes in `attend`."""
        return of_heads.view(self.size, -1)[self.rank]

    def _with_enough_heads(self, states: torch.Tensor) -> torch.Tensor:
        """[T / S, G, D] -> the same with each key/value head repeated, if there are fewer of them than ranks."""
        copies = max(1, self.size // states.shape[1])
        return states.repeat_interleave(copies, dim=1) if copies > 1 else states

    def _exchanged(self, sent: torch.Tensor) -> torch.Tensor:
        received: torch.Tensor = _Exchange.apply(sent, self.group)  # type: ignore[no-untyped-call]
        return received


def use_sequence_parallel(model: PreTrainedModel, parallel: SequenceParallel) -> None:
    """Have the language model compute this rank's slice of each sequence; its last hidden state is that of the whole
    sequence again. Raises ValueError if the heads cannot be shared equally, or layers carry a state."""
    config = model.config.get_text_config()
    for heads in heads_of_layers(config):
        problem = why_not_shared(config.num_attention_heads, heads.key_values, parallel.size)
        if problem is not None:
            raise ValueError(f"cluster.sequence_parallel_size: {problem}; choose another size")
    if carries_state(model):
        raise ValueError(f"cluster.sequence_parallel_size: {NO_SHARED_STATE}; set it to 1")
    language = model.get_decoder()
    language.register_forward_pre_hook(partial(_slice_inputs, parallel), with_kwargs=True)
    language.register_forward_hook(partial(_gather_states, parallel), with_kwargs=True)


def _slice_inputs(
    parallel: SequenceParallel, _module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    sliced: dict[str, Any] = {
        name: parallel.own_slice(kwargs[name], dim=dim)
        for name, dim in (("input_ids", 1), ("inputs_embeds", 1), ("position_ids", -1), ("visual_pos_masks", 1))
        if kwargs.get(name) is not None
    }
    layers = kwargs.get("deepstack_visual_embeds")
    if layers is not None:
        sliced["deepstack_visual_embeds"] = _own_vision_rows(parallel, kwargs["visual_pos_masks"], layers)
    return args, kwargs | sliced | {"sequence_parallel": parallel}


def _own_vision_rows(
    parallel: SequenceParallel, is_vision: torch.Tensor, layers: list[torch.Tensor]
) -> list[torch.Tensor]:
    """The rows of [vision tokens, width] that belong to this rank's tokens, for each layer (Qwen3-VL's DeepStack)."""
    width = _slice_width(is_vision.shape[1], parallel.size)
    before = int(is_vision[:, : parallel.rank * width].sum())
    own = int(is_vision[:, parallel.rank * width : (parallel.rank + 1) * width].sum())
    return [layer[before : before + own] for layer in layers]


def _gather_states(
    parallel: SequenceParallel, _module: Any, _args: tuple[Any, ...], kwargs: dict[str, Any], output: ModelOutput
) -> ModelOutput:
    """Forward hook: the last hidden state of the whole sequence, of which each rank's head takes other rows."""
    states = output.last_hidden_state[0]
    length = kwargs["tree_layout"].num_tokens
    output.last_hidden_state = parallel.gathered(states, length=length, share_gradients=True)[None]
    return output


def _slice_width(length: int, size: int) -> int:
    return -(-length // size)


def _by_rank(states: torch.Tensor, size: int) -> torch.Tensor:
    """[t, heads, D] -> [S, t, heads / S, D]."""
    tokens, heads, width = states.shape
    return states.view(tokens, size, heads // size, width).transpose(0, 1)


class _Exchange(torch.autograd.Function):
    """Part r of the first dimension goes to rank r, and the result's part r comes from it."""

    @staticmethod
    def forward(ctx: Any, sent: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
        ctx.group = group
        return _exchange(sent, group)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _exchange(grad, ctx.group), None


def _exchange(sent: torch.Tensor, group: ProcessGroup) -> torch.Tensor:
    sent = sent.contiguous()
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return received


class _Gather(torch.autograd.Function):
    """[W, ...] of each rank -> [S * W, ...], for `SequenceParallel.gathered`."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, parallel: SequenceParallel, share_gradients: bool) -> torch.Tensor:
        ctx.parallel, ctx.share_gradients = parallel, share_gradients
        whole = own.new_empty((parallel.size * len(own), *own.shape[1:]))
        dist.all_gather_into_tensor(whole, own.contiguous(), group=parallel.group)
        return whole

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        parallel: SequenceParallel = ctx.parallel
        parts = grad.contiguous().view(parallel.size, -1, *grad.shape[1:])
        if not ctx.share_gradients:
            return parts[parallel.rank], None, None
        own = torch.empty_like(parts[0])
        dist.reduce_scatter_tensor(own, grad.contiguous(), group=parallel.group)
        return own, None, None
