"""What an update reports of its tokens: sums over each group, which the driver adds up."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from rl_core.training.batches import TokenSums
from rl_core.types import TrainGroup


def sums_by_group(
    groups: Sequence[TrainGroup], per_token: Mapping[str, torch.Tensor], weights: torch.Tensor
) -> TokenSums:
    """The weighted sums of a micro-batch, group by group, in float64.

    Args:
        groups: The groups of the micro-batch.
        per_token: Metric name -> [K] the value at each response token, in the order of the groups.
        weights: [K] what each token counts in the loss of the optimizer batch.
    """
    weight = weights.detach().double()
    rows = torch.stack([weight, *(values.detach() * weight for values in per_token.values())]).cpu().numpy()
    tokens = [sum(len(sample.rollout.response_ids) for sample in group.samples) for group in groups]
    by_group = np.add.reduceat(rows, np.cumsum([0, *tokens[:-1]]), axis=1)
    own_weights, *sums = by_group.tolist()
    return TokenSums(sums=dict(zip(per_token, sums, strict=True)), weights=own_weights)
