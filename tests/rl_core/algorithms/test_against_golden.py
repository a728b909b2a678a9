"""Every number of tests/golden/algorithms.json, which the reference implementations computed."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from rl_core.algorithms.advantages import AdvantageInputs
from rl_core.algorithms.aggregation import BatchTotals, LossAverage, token_weights
from rl_core.algorithms.estimators import GRPO, RLOO, DrGRPO, PassKGRPO, ReMax
from rl_core.algorithms.kl import KL_ESTIMATORS
from rl_core.algorithms.losses import CISPOLoss, GSPOLoss, GSPOTokenLoss, PPOLoss, SAPOLoss
from rl_core.algorithms.policy_loss import ResponseTokens
from rl_core.algorithms.token_advantages import discounted_returns, generalized_advantages, whiten
from rl_core.training.critic import clipped_value_loss

CASES = json.loads((Path(__file__).parents[2] / "golden" / "algorithms.json").read_text())
GROUP_ESTIMATORS = {"grpo": GRPO().of_group, "grpo_passk": PassKGRPO().of_group, "rloo": RLOO().of_group}
LOSSES = {"default": PPOLoss, "gspo": GSPOLoss, "gspo_token": GSPOTokenLoss, "cispo": CISPOLoss, "sapo": SAPOLoss}
"""By the reference's names. A loss that it does not have has no number here."""

MODES = ["token", "seq"]

every_case = pytest.mark.parametrize("case", CASES, ids=[case["seed"] for case in CASES])


def responses(case: dict, rows: list[list[float]]) -> list[np.ndarray]:
    """The valid tokens of each padded row."""
    return [
        np.array(row)[np.array(mask, dtype=bool)]
        for row, mask in zip(rows, case["inputs"]["response_mask"], strict=True)
    ]


def flat(case: dict, rows: list[list[float]]) -> torch.Tensor:
    """The valid tokens of padded rows, in order."""
    return torch.from_numpy(np.concatenate(responses(case, rows)))


def lengths_of(case: dict) -> list[int]:
    return [int(sum(row)) for row in case["inputs"]["response_mask"]]


def weights_of(case: dict, mode: LossAverage) -> torch.Tensor:
    lengths = lengths_of(case)
    totals = BatchTotals(tokens=sum(lengths), sequences=len(lengths), longest_response=max(lengths))
    return token_weights(lengths, mode=mode, totals=totals).double()


def assert_tokens(case: dict, result: list[np.ndarray], expected: list[list[float]]) -> None:
    np.testing.assert_allclose(np.concatenate(result), np.concatenate(responses(case, expected)), atol=1e-6)


def by_group(case: dict, estimator: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
    """The estimator's advantages at every token, groups found by uid."""
    uids = np.array(case["inputs"]["uid"])
    rewards = np.array([part.sum() for part in responses(case, case["inputs"]["token_level_rewards"])])
    advantages = np.zeros_like(rewards)
    for uid in set(uids):
        advantages[uids == uid] = estimator(rewards[uids == uid])
    return [np.full(length, value) for length, value in zip(lengths_of(case), advantages, strict=True)]


@pytest.mark.parametrize("name", GROUP_ESTIMATORS)
@every_case
def test_group_advantages(case, name):
    assert_tokens(case, by_group(case, GROUP_ESTIMATORS[name]), case["advantages"][name]["advantages"])


@every_case
def test_dr_grpo_is_grpo_without_the_spread(case):
    """The reference has no Dr. GRPO; its own definition ties it to GRPO's numbers."""
    rewards = np.array(case["inputs"]["scores"])[:4]
    expected = GRPO().of_group(rewards) * (rewards.std(ddof=1) + 1e-6)
    np.testing.assert_allclose(DrGRPO().of_group(rewards), expected, atol=1e-9)


@every_case
def test_remax_advantages(case):
    rewards = [part.sum() for part in responses(case, case["inputs"]["token_level_rewards"])]
    inputs = AdvantageInputs(
        token_rewards=[
            [np.full(length, reward / length)] for length, reward in zip(lengths_of(case), rewards, strict=True)
        ],
        greedy_rewards=case["inputs"]["reward_baselines"],
    )
    advantages = [part for (part,) in ReMax().advantages(inputs)]
    assert_tokens(case, advantages, case["advantages"]["remax"]["advantages"])


@pytest.mark.parametrize("gamma", [1.0, 0.9])
@every_case
def test_reinforce_plus_plus_advantages(case, gamma):
    expected = case["advantages"][f"reinforce_plus_plus|gamma={gamma}"]
    returns = [discounted_returns(part, gamma=gamma) for part in responses(case, case["inputs"]["token_level_rewards"])]
    assert_tokens(case, returns, expected["returns"])
    assert_tokens(case, whiten(returns), expected["advantages"])


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.99, 0.95)])
@every_case
def test_generalized_advantages(case, gamma, lam):
    expected = case["advantages"][f"gae|gamma={gamma}|lam={lam}"]
    values = responses(case, case["inputs"]["values"])
    rewards = responses(case, case["inputs"]["token_level_rewards"])
    advantages = [generalized_advantages(r, v, gamma=gamma, lam=lam) for r, v in zip(rewards, values, strict=True)]
    assert_tokens(case, [a + v for a, v in zip(advantages, values, strict=True)], expected["returns"])
    assert_tokens(case, whiten(advantages), expected["advantages"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LOSSES)
@every_case
def test_policy_losses_with_their_gradients(case, name, mode):
    expected = case["policy_loss"][f"{name}|{mode}"]
    log_probs = flat(case, case["inputs"]["log_probs"]).requires_grad_()
    tokens = ResponseTokens(
        log_probs=log_probs,
        old_log_probs=flat(case, case["inputs"]["old_log_probs"]),
        advantages=flat(case, case["inputs"]["advantages"]),
        lengths=lengths_of(case),
    )
    options = {key: value for key, value in expected["config"].items() if key in LOSSES[name].model_fields}
    loss = LOSSES[name](**options).loss(tokens)
    total = (weights_of(case, mode) * loss.per_token).sum()
    total.backward()
    assert total.item() == pytest.approx(expected["loss"], abs=1e-6)
    torch.testing.assert_close(log_probs.grad, flat(case, expected["grad_log_probs"]), atol=1e-6, rtol=0)
    assert_metrics(case, tokens, loss.logged, expected["metrics"], mode)


def assert_metrics(
    case: dict, tokens: ResponseTokens, logged: dict[str, torch.Tensor], expected: dict, mode: LossAverage
) -> None:
    """`pg_clipfrac_higher` is what either bound clipped, `pg_clipfrac_lower` what the dual bound did."""
    by_token = weights_of(case, "token")
    assert (by_token * -tokens.log_ratio).sum().item() == pytest.approx(expected["ppo_kl"], abs=1e-6)
    surprise = (weights_of(case, mode) * -tokens.log_probs).sum().item()
    assert surprise == pytest.approx(expected["entropy_loss"], abs=1e-6)
    if "pg_clipfrac_higher" in expected:
        clipped = logged["clip_fraction_high"] | logged["clip_fraction_low"]
        assert (by_token * clipped).sum().item() == pytest.approx(expected["pg_clipfrac_higher"], abs=1e-6)
        dual = (by_token * logged["clip_fraction_dual"]).sum().item()
        assert dual == pytest.approx(expected["pg_clipfrac_lower"], abs=1e-6)


@pytest.mark.parametrize("name", KL_ESTIMATORS)
@every_case
def test_kl_estimators(case, name):
    log_probs, reference = (flat(case, case["inputs"][key]) for key in ("log_probs", "ref_log_probs"))
    expected = flat(case, case["kl"][name])
    torch.testing.assert_close(KL_ESTIMATORS[name](log_probs, reference), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("mode", MODES)
@every_case
def test_value_loss(case, mode):
    expected = case["value_loss"][mode]
    values = flat(case, expected["vpreds"])
    loss = clipped_value_loss(
        values=values,
        old_values=flat(case, case["inputs"]["values"]),
        returns=flat(case, expected["returns"]),
        cliprange_value=0.5,
    )
    total = (weights_of(case, mode) * loss.per_token).sum().item()
    assert total == pytest.approx(expected["loss"], abs=1e-6)
    by_token = weights_of(case, "token")
    assert (by_token * loss.clipped).sum().item() == pytest.approx(expected["metrics"]["vf_clipfrac"], abs=1e-6)
    assert (by_token * values).sum().item() == pytest.approx(expected["metrics"]["vpred_mean"], abs=1e-6)


def test_every_name_of_the_file_is_tested():
    for case in CASES:
        assert set(case["kl"]) == set(KL_ESTIMATORS)
        assert set(case["policy_loss"]) == {f"{name}|{mode}" for name in LOSSES for mode in MODES}
        families = {name.partition("|")[0] for name in case["advantages"]}
        assert families == {*GROUP_ESTIMATORS, "remax", "reinforce_plus_plus", "gae"}
