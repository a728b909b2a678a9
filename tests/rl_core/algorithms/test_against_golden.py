"""Advantages, losses with their gradients and KL against numbers computed with the reference implementations."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rl_core.algorithms.aggregation import BatchTotals, LossAverage, token_weights
from rl_core.algorithms.group_advantages import grpo_advantages
from rl_core.algorithms.kl import low_variance_kl
from rl_core.algorithms.policy_loss import clipped_policy_loss

CASES = json.loads((Path(__file__).parents[2] / "golden" / "algorithms.json").read_text())
SEEDS = [case["seed"] for case in CASES]


def flat(case: dict, rows: list[list[float]]) -> torch.Tensor:
    """The valid tokens of padded rows, in order."""
    mask = torch.tensor(case["inputs"]["response_mask"], dtype=torch.bool)
    return torch.tensor(rows, dtype=torch.float64)[mask]


@pytest.mark.parametrize("case", CASES, ids=SEEDS)
def test_grpo_advantages_match_the_reference(case: dict) -> None:
    uids = np.array(case["inputs"]["uid"])
    rewards = np.array(case["inputs"]["token_level_rewards"], dtype=np.float64).sum(axis=1)
    mask = np.array(case["inputs"]["response_mask"])
    result = np.zeros_like(mask)
    for uid in set(uids):
        members = uids == uid
        result[members] = grpo_advantages(rewards[members])[:, None] * mask[members]
    np.testing.assert_allclose(result, np.array(case["advantages"]["grpo"]["advantages"]), atol=1e-6)


@pytest.mark.parametrize("mode", ["token", "seq"])
@pytest.mark.parametrize("case", CASES, ids=SEEDS)
def test_clipped_loss_and_its_gradient_match_the_reference(case: dict, mode: LossAverage) -> None:
    expected = case["policy_loss"][f"default|{mode}"]
    lengths = [int(sum(row)) for row in case["inputs"]["response_mask"]]
    log_probs = flat(case, case["inputs"]["log_probs"]).requires_grad_()
    loss = clipped_policy_loss(
        log_probs=log_probs,
        old_log_probs=flat(case, case["inputs"]["old_log_probs"]),
        advantages=flat(case, case["inputs"]["advantages"]),
        clip_ratio_low=expected["config"]["clip_ratio_low"],
        clip_ratio_high=expected["config"]["clip_ratio_high"],
        clip_ratio_dual=expected["config"]["clip_ratio_dual"],
    )
    totals = BatchTotals(tokens=sum(lengths), sequences=len(lengths))
    total = (token_weights(lengths, mode=mode, totals=totals).double() * loss.per_token).sum()
    total.backward()
    assert total.item() == pytest.approx(expected["loss"], abs=1e-6)
    torch.testing.assert_close(log_probs.grad, flat(case, expected["grad_log_probs"]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("case", CASES, ids=SEEDS)
def test_low_variance_kl_matches_the_reference(case: dict) -> None:
    result = low_variance_kl(flat(case, case["inputs"]["log_probs"]), flat(case, case["inputs"]["ref_log_probs"]))
    torch.testing.assert_close(result, flat(case, case["kl"]["low_var_kl"]), atol=1e-5, rtol=0)
