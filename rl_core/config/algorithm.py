"""What the policy update optimises: advantages, policy loss, KL, off-policy correction."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from rl_core.algorithms.advantages import AdvantageSection
from rl_core.algorithms.custom import CustomFunction
from rl_core.algorithms.estimators import ESTIMATORS, GRPO
from rl_core.algorithms.filters import FILTERS
from rl_core.algorithms.group_filter import GroupFilterSection
from rl_core.algorithms.losses import LOSSES, PPOLoss
from rl_core.algorithms.policy_loss import PolicyLossSection
from rl_core.algorithms.section import AlgorithmSection
from rl_core.choice import one_of
from rl_core.section import Section

DEFAULT_TYPES: Final = {"advantage": "grpo", "loss": "ppo", "online_filtering": "bounds"}
"""What the sections are that name no `type`."""

KLPenalty = Literal["kl", "abs", "mse", "low_var_kl", "full"]

if TYPE_CHECKING:
    Advantage = AdvantageSection
    Loss = PolicyLossSection
    GroupFilter = GroupFilterSection
else:  # whatever is entered there can be chosen
    Advantage = one_of(ESTIMATORS, default=DEFAULT_TYPES["advantage"])
    Loss = one_of(LOSSES, default=DEFAULT_TYPES["loss"])
    GroupFilter = one_of(FILTERS, default=DEFAULT_TYPES["online_filtering"])


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


Correction = Annotated[TruncatedCorrection | MaskedCorrection, Field(discriminator="type")]


class AlgorithmConfig(Section):
    """How a step's rewards become a gradient; the defaults are GRPO with PPO's clip."""

    advantage: Advantage = GRPO()
    """Advantage estimator, whose credit a token gets: compared with the group, which then needs rollout.n of 2 or more,
    with the batch (`reinforce_plus_plus`), with the prompt's greedy response (`remax`), or with what a critic expects
    (`gae`, and section `critic`)."""
    loss: Loss = PPOLoss()
    """Policy loss."""
    loss_avg_mode: Literal["token", "seq", "seq_sum_norm"] = "token"
    """`token`: mean over all response tokens of the optimizer batch. `seq`: mean over sequences of token means.
    `seq_sum_norm`: mean over sequences of token sums / rollout.max_response_length (Dr. GRPO)."""
    entropy_coef: float = Field(default=0.0, ge=0.0)
    """Weight of the entropy bonus."""
    online_filtering: GroupFilter | None = None
    """Which groups are learned from; null learns from all."""
    kl: KLConfig | None = None
    """KL to the reference; null builds no reference."""
    old_log_probs: Literal["engine", "recompute"] = "engine"
    """Log-probs that the ratio starts from: those the engine sampled with, or the trainer's own, one more pass."""
    correction: Correction | None = None
    """Weighs the loss by trainer / engine probability; needs old_log_probs: recompute. Null leaves the mismatch."""

    def sections(self) -> Iterator[tuple[str, AlgorithmSection]]:
        """The parts that a `type` chooses, each with its key."""
        yield "algorithm.advantage", self.advantage
        yield "algorithm.loss", self.loss
        if self.online_filtering is not None:
            yield "algorithm.online_filtering", self.online_filtering

    def custom_functions(self) -> Iterator[tuple[str, CustomFunction]]:
        """Those that are functions of the user's."""
        yield from ((key, section) for key, section in self.sections() if isinstance(section, CustomFunction))

    @property
    def files(self) -> list[str]:
        """The files of the user's functions as they are written, each once and in order."""
        return sorted({custom.file for _, custom in self.custom_functions() if custom.file is not None})

    @property
    def keeps_surplus(self) -> bool:
        """Whether a step may learn from groups that the step before has drawn."""
        return self.online_filtering is not None and self.online_filtering.surplus == "keep"
