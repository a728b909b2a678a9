"""What the policy update optimises: advantages, policy loss, KL, off-policy correction."""

from typing import Annotated, Final, Literal

from pydantic import Field

from rl_core.section import Section

AdvantageName = Literal[
    "grpo", "dr_grpo", "grpo_passk", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax", "gae"
]
PolicyLossName = Literal["default", "gspo", "gspo_token", "cispo", "sapo"]
KLPenalty = Literal["kl", "abs", "mse", "low_var_kl", "full"]

GROUP_BASELINES: Final = frozenset({"grpo", "dr_grpo", "grpo_passk", "rloo", "reinforce_plus_plus_baseline"})
"""Estimators that compare a rollout with the others of its group, so that a group needs at least two."""


class AdaptiveKLConfig(Section):
    """Lets the KL coefficient follow the KL that is seen."""

    target: float = Field(default=0.1, gt=0.0)
    """KL to hold, nats a token."""
    horizon: float = Field(default=10_000.0, gt=0.0)
    """Responses over which the coefficient may change by a factor of about 1.2: those of a step
    (data.rollout_batch_size x rollout.n) or more."""


class KLConfig(Section):
    """Keeps the policy near the reference (the model that RL starts from)."""

    coef: float = Field(gt=0.0)
    """Weight of the KL term; where it starts when `adaptive` is set."""
    penalty: KLPenalty = "low_var_kl"
    """Estimator: `kl`, `mse` and `low_var_kl` are Schulman's k1, k2 and k3; `abs` is the absolute log-ratio; `full` is
    the KL itself, over the whole vocabulary, for another pass of the reference in each micro-batch."""
    use_kl_loss: bool = True
    """Add the term to the loss; false subtracts it from the reward of each token, before the advantages."""
    adaptive: AdaptiveKLConfig | None = None
    """Follow a target; null keeps `coef`."""


class TruncatedCorrection(Section):
    """TIS: each token's loss times pi_trainer / pi_engine, at most `clip_max`."""

    type: Literal["tis"]
    """Selects truncated importance sampling."""
    level: Literal["token", "sequence"] = "token"
    """Ratio of a token, or the product over its response."""
    clip_max: float = Field(default=2.0, ge=1.0)
    """Largest weight."""


class MaskedCorrection(Section):
    """MIS: each token's loss times pi_trainer / pi_engine, and 0 where that is out of bounds (IcePop, level token)."""

    type: Literal["mis"]
    """Selects masked importance sampling."""
    level: Literal["token", "sequence"] = "token"
    """Ratio of a token, or the product over its response."""
    clip_min: float = Field(default=0.5, ge=0.0, le=1.0)
    """Smallest ratio that is learned from."""
    clip_max: float = Field(default=5.0, ge=1.0)
    """Largest ratio that is learned from."""


class OnlineFilteringConfig(Section):
    """Learns only from groups with something to learn, and draws more prompts until the batch is full (DAPO)."""

    filter_key: str = "overall"
    """Reward component that is looked at."""
    statistic: Literal["mean", "spread"] = "mean"
    """Of the component over a group: its mean, or its standard deviation."""
    filter_low: float = 0.01
    """Groups at or below it are left out."""
    filter_high: float | None = 0.99
    """Groups at or above it are left out; null has no upper bound (`spread`)."""
    mini_rollout_batch_size: int | None = Field(default=None, ge=1)
    """Prompts a draw: small draws throw fewer groups away once the batch is full, and keep the engine less busy. Null
    draws data.rollout_batch_size."""
    max_try_make_batch: int = Field(default=20, ge=1)
    """Draws of mini_rollout_batch_size prompts a step; the run stops when they do not fill the batch."""
    surplus: Literal["discard", "keep"] = "discard"
    """What becomes of such groups above the batch's size: `keep` learns from them in the next step, their engine
    log-probs as old ones, and drops them after it."""


Correction = Annotated[TruncatedCorrection | MaskedCorrection, Field(discriminator="type")]


class AlgorithmConfig(Section):
    """How a step's rewards become a gradient; the defaults are GRPO with PPO's clip."""

    adv_estimator: AdvantageName = "grpo"
    """Advantage estimator. `reinforce_plus_plus` compares with the batch, `remax` with the prompt's greedy response,
    one more rollout a prompt, `gae` (PPO) with what a critic expects (section `critic`); the others compare with the
    group and need rollout.n of 2 or more."""
    gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount a token of `reinforce_plus_plus` and `gae`."""
    lam: float = Field(default=1.0, ge=0.0, le=1.0)
    """Decay of `gae`: 0 trusts the critic, 1 the returns."""
    loss_type: PolicyLossName = "default"
    """Policy loss: `default` is PPO's clip with dual clip; `gspo` and `gspo_token` take the ratio of a whole response;
    `cispo` uses the clipped ratio as a weight; `sapo` a smooth gate."""
    clip_ratio_low: float = Field(default=0.2, ge=0.0, le=1.0)
    """The ratio is clipped below 1 - this (published: gspo 3e-4; cispo 1, which clips nothing from below)."""
    clip_ratio_high: float = Field(default=0.3, gt=0.0)
    """The ratio is clipped above 1 + this (clip-higher when larger than the lower bound; published: gspo 4e-4)."""
    clip_ratio_dual: float = Field(default=3.0, gt=1.0)
    """Dual clip of `default` and `gspo`: bound of the loss for negative advantages, in multiples of the advantage."""
    tau_positive: float = Field(default=1.0, gt=0.0)
    """Temperature of `sapo` where the advantage is not negative."""
    tau_negative: float = Field(default=1.05, gt=0.0)
    """Temperature of `sapo` where it is; larger lets go of such tokens sooner."""
    loss_avg_mode: Literal["token", "seq", "seq_sum_norm"] = "token"
    """`token`: mean over all response tokens of the optimizer batch. `seq`: mean over sequences of token means.
    `seq_sum_norm`: mean over sequences of token sums / rollout.max_response_length (Dr. GRPO)."""
    entropy_coef: float = Field(default=0.0, ge=0.0)
    """Weight of the entropy bonus."""
    online_filtering: OnlineFilteringConfig | None = None
    """Which groups are learned from; null learns from all."""
    kl: KLConfig | None = None
    """KL to the reference; null builds no reference."""
    old_log_probs: Literal["engine", "recompute"] = "engine"
    """Log-probs that the ratio starts from: those the engine sampled with, or the trainer's own, one more pass."""
    correction: Correction | None = None
    """Weighs the loss by trainer / engine probability; needs old_log_probs: recompute. Null leaves the mismatch."""

    @property
    def keeps_surplus(self) -> bool:
        """Whether a step may learn from groups that the step before has drawn."""
        return self.online_filtering is not None and self.online_filtering.surplus == "keep"
