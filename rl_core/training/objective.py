"""The loss of a micro-batch: policy loss, KL and entropy, each normalised over the whole batch; and its metrics."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from rl_core.algorithms.aggregation import BatchTotals, LossAverage, token_weights
from rl_core.algorithms.kl import KL_ESTIMATORS
from rl_core.algorithms.policy_loss import ResponseTokens
from rl_core.config.algorithm import AlgorithmConfig
from rl_core.models.output_head import PolicyOutput
from rl_core.training.batches import TokenSums
from rl_core.types import Float32Array, TrainGroup, TrainSample

_OWN_VALUES: Final = frozenset(
    {"approx_kl", "entropy", "grad_norm", "kl_loss", "lr", "pg_loss", "skipped_optimizer_steps"}
)
"""The metrics `actor/NAME` that are not values of a policy loss."""

_OF_THE_LOSS: Final = "loss/"


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatchLoss:
    """A micro-batch's part of the optimizer batch's loss."""

    total: torch.Tensor  # Scalar with gradient; the parts of a batch add up to its loss
    weights: torch.Tensor  # [K] the weight of each token in the batch
    per_token: Mapping[str, torch.Tensor]  # Values to log, name -> [K]


class PolicyObjective:
    """The loss that the section `algorithm` of the config describes. `kl_coef` is the weight of the KL term; it counts
    if `kl.use_kl_loss` puts the term into the loss."""

    def __init__(self, config: AlgorithmConfig, *, kl_coef: float | None) -> None:
        self._config = config
        self._kl_coef = kl_coef if config.kl is not None and config.kl.use_kl_loss else None

    @property
    def has_full_kl(self) -> bool:
        """Whether the reference's distributions over the whole vocabulary are needed."""
        return self._kl_coef is not None and self._config.kl is not None and self._config.kl.penalty == "full"

    @property
    def has_entropy_bonus(self) -> bool:
        """Whether the gradient must flow through the entropy."""
        return self._config.entropy_coef > 0.0

    def loss(self, output: PolicyOutput, samples: Sequence[TrainSample], *, totals: BatchTotals) -> MicroBatchLoss:
        """The loss of `samples`, whose response tokens `output` describes in order."""
        tokens = response_tokens(output.log_probs, samples)
        weights = loss_weights(samples, mode=self._config.loss_avg_mode, totals=totals).to(output.log_probs.device)
        policy = self._config.loss.loss(tokens)
        per_token = policy.per_token * concatenated(map(_importance_weights, samples), like=weights)
        logged = {"pg_loss": per_token, "approx_kl": -tokens.log_ratio}
        logged |= {_distinct_name(name): values for name, values in policy.logged.items()}
        if self._kl_coef is not None:
            kl = self._kl(output, samples)
            logged["kl_loss"] = kl
            per_token = per_token + self._kl_coef * kl
        if output.entropy is not None:
            logged["entropy"] = output.entropy
            per_token = per_token - self._config.entropy_coef * output.entropy
        named = {f"actor/{name}": values for name, values in logged.items()}
        return MicroBatchLoss(total=(weights * per_token).sum(), weights=weights, per_token=named)

    def _kl(self, output: PolicyOutput, samples: Sequence[TrainSample]) -> torch.Tensor:
        if output.full_kl is not None:
            return output.full_kl
        assert self._config.kl is not None, "a KL coefficient without algorithm.kl"
        reference = concatenated((sample.ref_log_probs for sample in samples), like=output.log_probs)
        return KL_ESTIMATORS[self._config.kl.penalty](output.log_probs, reference)


def _distinct_name(name: str) -> str:
    """The name of a value that a policy loss logs, with a prefix if it would be, or could be taken for, another metric
    of the update."""
    return f"{_OF_THE_LOSS}{name}" if name in _OWN_VALUES or name.startswith(_OF_THE_LOSS) else name


def loss_weights(samples: Sequence[TrainSample], *, mode: LossAverage, totals: BatchTotals) -> torch.Tensor:
    """[K] float32 `token_weights` of the samples' tokens in their order; 0 for samples that are not in the loss."""
    lengths = [len(sample.rollout.response_ids) for sample in samples]
    in_loss = torch.tensor([sample.in_loss for sample in samples]).repeat_interleave(torch.tensor(lengths))
    return token_weights(lengths, mode=mode, totals=totals).where(in_loss, 0.0)


def response_tokens(log_probs: torch.Tensor, samples: Sequence[TrainSample]) -> ResponseTokens:
    """What a policy loss needs of the samples' tokens, [K] in the samples' order, with the policy's log-probs."""
    return ResponseTokens(
        log_probs=log_probs,
        old_log_probs=concatenated((sample.old_log_probs for sample in samples), like=log_probs),
        advantages=concatenated((sample.advantages for sample in samples), like=log_probs),
        lengths=[len(sample.rollout.response_ids) for sample in samples],
    )


def _importance_weights(sample: TrainSample) -> Float32Array:
    if sample.importance_weights is None:
        return np.ones(len(sample.rollout.response_ids), dtype=np.float32)
    return sample.importance_weights


def concatenated(arrays: Iterable[Float32Array | None], *, like: torch.Tensor) -> torch.Tensor:
    """The arrays, which are all there, as one tensor on the device of `like`."""
    return torch.from_numpy(np.concatenate(list(arrays))).to(like.device)


def sums_by_group(
    groups: Sequence[TrainGroup], per_token: Mapping[str, torch.Tensor], weights: torch.Tensor
) -> TokenSums:
    """The weighted sums of a micro-batch, group by group, in float64, from [K] values and [K] weights of its tokens."""
    weight = weights.detach().double()
    rows = torch.stack([weight, *(values.detach() * weight for values in per_token.values())]).cpu().numpy()
    tokens = [sum(len(rollout.response_ids) for rollout in group.rollouts) for group in groups]
    by_group = np.add.reduceat(rows, np.cumsum([0, *tokens[:-1]]), axis=1)
    own_weights, *sums = by_group.tolist()
    return TokenSums(sums=dict(zip(per_token, sums, strict=True)), weights=own_weights)
