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
    """Number of responses over which the coefficient may change by a factor of about 1.2. At least the responses of
    one step (data.rollout_batch_size x rollout.n)."""


class KLConfig(Section):
    """A KL term that keeps the policy near the reference (the model that RL starts from)."""

    coef: float = Field(gt=0.0)
    """Weight of the KL term; its first value when `adaptive` is set."""
    penalty: KLPenalty = "low_var_kl"
    """Estimator: `kl`, `mse` and `low_var_kl` are Schulman's k1, k2 and k3; `abs` is the absolute log-ratio; `full` is
    the KL itself over the whole vocabulary."""
    use_kl_loss: bool = True
    """Add the term to the loss; false subtracts it from the reward of each token before advantages are computed."""
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
    """Take the ratio of each token, or the product of the ratios of its whole response."""
    clip_max: float = Field(default=2.0, ge=1.0)
    """Largest weight."""


class MaskedCorrection(Section):
    """MIS: the loss of each token is multiplied by pi_trainer / pi_generator, or by 0 where that ratio is out of bounds
    (IcePop with `level: token`)."""

    type: Literal["mis"]
    level: Literal["token", "sequence"] = "token"
    """Take the ratio of each token, or the product of the ratios of its whole response."""
    clip_min: float = Field(default=0.5, ge=0.0, le=1.0)
    """Tokens with a smaller ratio are not learned from."""
    clip_max: float = Field(default=5.0, ge=1.0)
    """Tokens with a larger ratio are not learned from."""


Correction = Annotated[TruncatedCorrection | MaskedCorrection, Field(discriminator="type")]


class AlgorithmConfig(Section):
    """How a step's rewards become a gradient; the defaults are GRPO with PPO's clip."""

    advantage: Advantage = GRPO()
    """Advantage estimator. It compares a response with its group (rollout.n must then be 2 or more), with the batch
    (`reinforce_plus_plus`), with the greedy response to the prompt (`remax`), or with what a critic expects (`gae`,
    which needs the section `critic`)."""
    loss: Loss = PPOLoss()
    """Policy loss."""
    loss_avg_mode: Literal["token", "seq", "seq_sum_norm"] = "token"
    """`token`: mean over all response tokens of the optimizer batch. `seq`: mean over sequences of token means.
    `seq_sum_norm`: mean over sequences of token sums / rollout.max_response_length (Dr. GRPO)."""
    entropy_coef: float = Field(default=0.0, ge=0.0)
    """Weight of the entropy bonus."""
    overlong_filtering: bool = False
    """Leave responses that were cut at rollout.max_response_length out of the loss (DAPO, arXiv 2503.14476, section
    3.4). They keep their part in the baseline of their group."""
    online_filtering: GroupFilter | None = None
    """Group filtering: which groups are learned from; null learns from all of them. `bounds` is its default type."""
    kl: KLConfig | None = None
    """KL to the reference; null loads no reference."""
    old_log_probs: Literal["engine", "recompute"] = "engine"
    """Where the log-probs come from that the ratio starts from: `engine` takes the log-probs that the generator sampled
    with, `recompute` lets the trainer compute them in another pass. Unless it is set, `recompute` with
    rollout.staleness 1."""
    correction: Correction | None = None
    """Weighs the loss by the ratio of the trainer's probability to the generator's; needs `old_log_probs: recompute`.
    Null corrects nothing."""

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
