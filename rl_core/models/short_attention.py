"""Causal attention of many short rows on a CPU, as a few products of all rows at once.

The kernel of `scaled_dot_product_attention` computes each head of each row alone. For rows of ten tokens its calls take
three times as long as these products; for long rows it is faster, and it keeps no scores.

They compute in float32 at least, as the kernel does.

Letters: N rows of R slots, H query heads, G key/value heads (H a multiple of G), D head size.
"""

from typing import NamedTuple

import torch

_LARGEST_QUERY = 768
"""Numbers (R * D) of a row's query head up to which the products are faster, on two cores, for D from 32 to 128."""


def are_short(query: torch.Tensor) -> bool:
    """Whether `ShortRows` is the faster way for queries [N, R, H, D]."""
    return query.shape[1] * query.shape[3] <= _LARGEST_QUERY


class ShortRows(NamedTuple):
    """Attention in which each slot of a row sees the row's slots up to itself.

    Attributes:
        scale: Multiplies the scores.
    """

    scale: float

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the attention.

        Args:
            query: [N, R, H, D].
            key: [N, R, G, D].
            value: [N, R, G, D].

        Returns:
            [N * R, H, D] the output in the queries' number format, and [N * R, H] log-sum-exps of the scores.
        """
        groups = key.shape[2]
        queries, keys, values = (_by_group(states, groups) for states in (query, key, value))
        scores = _scores(queries, keys, slots=query.shape[1], scale=self.scale)
        largest = scores.amax(-1, keepdim=True)
        weights = scores.sub_(largest).exp_()
        total = weights.sum(-1, keepdim=True)
        out = torch.bmm(weights, values).div_(total)
        return (
            _by_slot(out, query.shape).to(query.dtype),
            _by_slot(total.log_().add_(largest), (*query.shape[:3], 1)).squeeze(-1),
        )

    def backward(
        self,
        grad: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        out: torch.Tensor,
        log_sum_exp: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The gradients of query, key and value (Dao et al. 2022, arXiv:2205.14135, appendix B.2).

        Args:
            grad: [N, R, H, D] gradient of `out`.
            query: [N, R, H, D].
            key: [N, R, G, D].
            value: [N, R, G, D].
            out: [N, R, H, D] output, perhaps of more keys than these.
            log_sum_exp: [N, R, H] log-sum-exps of the scores, perhaps of more keys.

        Returns:
            [N * R, H, D] and twice [N * R, G, D].
        """
        groups = key.shape[2]
        queries, keys, values, grads = (_by_group(states, groups) for states in (query, key, value, grad))
        scores = _scores(queries, keys, slots=query.shape[1], scale=self.scale)
        weights = scores.sub_(_by_group(log_sum_exp[..., None], groups)).exp_()
        # A softmax moves only what differs from the average of its gradients.
        average = (grads * _by_group(out, groups)).sum(-1, keepdim=True)
        score_grads = torch.bmm(grads, values.transpose(1, 2)).sub_(average).mul_(weights).mul_(self.scale)
        found = (
            _by_slot(torch.bmm(score_grads, keys), query.shape),
            _by_slot(torch.bmm(score_grads.transpose(1, 2), queries), key.shape),
            _by_slot(torch.bmm(weights.transpose(1, 2), grads), value.shape),
        )
        dq, dk, dv = (gradient.to(query.dtype) for gradient in found)
        return dq, dk, dv


def _scores(queries: torch.Tensor, keys: torch.Tensor, *, slots: int, scale: float) -> torch.Tensor:
    """[N * G, (H / G) * R, R], -inf where a key comes after the query."""
    later = torch.full((slots, slots), float("-inf"), dtype=queries.dtype).triu_(1)
    every_head = later.repeat(queries.shape[1] // slots, 1)
    return torch.baddbmm(every_head, queries, keys.transpose(1, 2), alpha=scale)


def _by_group(states: torch.Tensor, groups: int) -> torch.Tensor:
    """[N, R, heads, D] -> [N * G, (heads / G) * R, D]: one matrix for all heads that share keys."""
    rows, slots, heads, size = states.shape
    grouped = states.view(rows, slots, groups, heads // groups, size).permute(0, 2, 3, 1, 4)
    matrices = grouped.reshape(rows * groups, heads // groups * slots, size)
    return matrices.to(torch.promote_types(states.dtype, torch.float32))


def _by_slot(grouped: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """The inverse of `_by_group` for states of this shape: -> [N * R, heads, D]."""
    rows, slots, heads, size = shape
    groups = len(grouped) // rows
    by_head = grouped.view(rows, groups, heads // groups, slots, size).permute(0, 3, 1, 2, 4)
    return by_head.reshape(rows * slots, heads, size)
