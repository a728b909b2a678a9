"""The section `algorithm`: advantages, policy loss, KL, off-policy correction."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field
from typing_extensions import override

from rl_core.algorithms.advantages import AdvantageSection
from rl_core.algorithms.custom import CustomFunction
from rl_core.algorithms.estimators import ESTIMATORS, GRPO
from rl_core.algorithms.filters import FILTERS
from rl_core.algorithms.group_filter import GroupFilterSection
from rl_core.algorithms.losses import LOSSES, PPOLoss
from rl_core.algorithms.policy_loss import PolicyLossSection
from rl_core.algorithms.section import AlgorithmSection
from rl_core.problem import Problem
from rl_core.section import Section, one_of

DEFAULT_TYPES: Final = {"advantage": "grpo", "loss": "ppo", "online_filtering": "bounds"}
"""The `type` of a section that names none."""

KLPenalty = Literal["kl", "abs", "mse", "low_var_kl", "full"]

if TYPE_CHECKING:
    Advantage = AdvantageSection
    Loss = PolicyLossSection
    GroupFilter = GroupFilterSection
else:  # every class that is registered there can be chosen
    Advantage = one_of(ESTIMATORS, default=DEFAULT_TYPES["advantage"])
    Loss = one_of(LOSSES, default=DEFAULT_TYPES["loss"])
    GroupFilter = one_of(FILTERS, default=DEFAULT_TYPES["online_filtering"])


class AdaptiveKLConfig(Section):
    """Adapts the KL coefficient so that the measured KL stays near a target."""

    target: float = Field(default=0.1, gt=0.0)
    """KL to aim at, in nats a token."""
    horizon: float = Field(default=10_000.0, gt=0.0)
    """Number of responses over which the coefficient may change by a factor of about 1.2; at least those of one
    step."""


class KLConfig(Section):
    """A KL term that keeps the policy near the reference (the model that RL starts from)."""

    coef: float = Field(gt=0.0)
    """Weight of the KL term; its first value when `adaptive` is set."""
    penalty: KLPenalty = "low_var_kl"
    """Estimator: Schulman's k1 (`kl`), k2 (`mse`) or k3 (`low_var_kl`), the absolute log-ratio (`abs`), or the KL over
    the whole vocabulary (`full`)."""
    use_kl_loss: bool = True
    """Add the term to the loss; false subtracts it from the reward of each token."""
    adaptive: AdaptiveKLConfig | None = None
    """Adapt the coefficient to a target; null keeps `coef`."""

    @override
    def problems(self) -> Iterator[Problem]:
        if self.use_kl_loss and self.penalty == "kl":
            yield Problem(
                "penalty",
                "the gradient of `kl` in the loss is zero on average, so it does not keep the policy near the "
                "reference",
                "set low_var_kl or mse, or algorithm.kl.use_kl_loss to false",
                fatal=False,
            )


class TruncatedCorrection(Section):
    """TIS: the loss of each token is multiplied by pi_trainer / pi_generator, but at most by `clip_max`."""

    type: Literal["tis"]
    level: Literal["token", "sequence"] = "token"
    """Take the ratio of each token, or the product over its response."""
    clip_max: float = Field(default=2.0, ge=1.0)
    """Largest weight."""


class MaskedCorrection(Section):
    """MIS: the loss of each token is multiplied by pi_trainer / pi_generator, or by 0 where that ratio is out of bounds
    (IcePop with `level: token`)."""

    type: Literal["mis"]
    level: Literal["token", "sequence"] = "token"
    """Take the ratio of each token, or the product over its response."""
    clip_min: float = Field(default=0.5, ge=0.0, le=1.0)
    """Tokens with a smaller ratio are not learned from."""
    clip_max: float = Field(default=5.0, ge=1.0)
    """Tokens with a larger ratio are not learned from."""


Correction = Annotated[TruncatedCorrection | MaskedCorrection, Field(discriminator="type")]


class AlgorithmConfig(Section):
    """How a step's rewards become a gradient; the defaults are GRPO with PPO's clip."""

    advantage: Advantage = GRPO()
    """Advantage estimator."""
    loss: Loss = PPOLoss()
    """Policy loss."""
    loss_avg_mode: Literal["token", "seq", "seq_sum_norm"] = "token"
    """`token`: mean over all response tokens of the optimizer batch. `seq`: mean over sequences of token means.
    `seq_sum_norm`: mean over sequences of token sums / rollout.max_response_length (Dr. GRPO)."""
    entropy_coef: float = Field(default=0.0, ge=0.0)
    """Weight of the entropy bonus."""
    overlong_filtering: bool = False
    """Leave responses that were cut at rollout.max_response_length out of the loss (DAPO), but not out of the baseline
    of their group."""
    online_filtering: GroupFilter | None = None
    """Which groups are learned from (group filtering); null learns from all. `bounds` is the default type."""
    kl: KLConfig | None = None
    """KL to the reference; null loads no reference."""
    old_log_probs: Literal["engine", "recompute"] = "engine"
    """Whose log-probs the ratio starts from: the generator's (`engine`), or the trainer's of another pass (`recompute`,
    the default with rollout.staleness 1)."""
    correction: Correction | None = None
    """Weighs the loss by the ratio of the trainer's probability to the generator's; needs `old_log_probs:
    recompute`."""

    @override
    def problems(self) -> Iterator[Problem]:
        if self.keeps_surplus and self.old_log_probs == "recompute":
            yield Problem(
                "online_filtering.surplus",
                "a group of the surplus was drawn by earlier weights, so old_log_probs recompute would compute its "
                "log-probs with other weights, and the ratio would not show how old the group is",
                "set it to discard, or algorithm.old_log_probs to engine",
            )
        if self.correction is not None and self.old_log_probs == "engine":
            yield Problem(
                "correction",
                "with old_log_probs engine the ratio already starts from the generator's log-probs, and every weight "
                "would be 1",
                "set algorithm.old_log_probs to recompute, or algorithm.correction to null",
            )

    def sections(self) -> Iterator[tuple[str, AlgorithmSection]]:
        """The sections that a `type` chooses, each with its key."""
        yield "algorithm.advantage", self.advantage
        yield "algorithm.loss", self.loss
        if self.online_filtering is not None:
            yield "algorithm.online_filtering", self.online_filtering

    def custom_functions(self) -> Iterator[tuple[str, CustomFunction]]:
        """The sections that are a function of the user's, each with its key."""
        yield from ((key, section) for key, section in self.sections() if isinstance(section, CustomFunction))

    @property
    def files(self) -> list[str]:
        """The files of the user's functions as the config names them, each once and sorted."""
        return sorted({custom.file for _, custom in self.custom_functions() if custom.file is not None})

    @property
    def keeps_surplus(self) -> bool:
        """Whether a step may learn from groups that an earlier step has drawn."""
        return self.online_filtering is not None and self.online_filtering.surplus == "keep"
