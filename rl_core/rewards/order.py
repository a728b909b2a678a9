"""What a run asks of the processes that call its reward functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from rl_core.isolation.order import Order
from rl_core.rewards.messages import CallResult, RewardSpec

if TYPE_CHECKING:
    from rl_core.rewards.calling import Scorer


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardOrder(Order):
    """The reward functions. `answer_names` are the columns that answers come from, under whose names a function in
    TRL's form gets them."""

    section: ClassVar = "reward"
    kind: ClassVar = "reward"

    specs: Sequence[RewardSpec]
    answer_names: Sequence[str] = ()

    @override
    def load(self, index: int) -> "Scorer":
        from rl_core.rewards.calling import load_scorer  # only the scoring processes load user code

        return load_scorer(self.specs[index], answer_names=self.answer_names)

    @override
    def result(self, *words: Any) -> CallResult:
        from rl_core.rewards.components import components_of

        components, parsed, error = words
        return CallResult(components_of(components), parsed, None) if error is None else self.failed(str(error))

    @override
    def failed(self, reason: str) -> CallResult:
        return CallResult({}, None, reason)
