"""The losses and estimators that need no function of the user's, by the `type` that chooses them."""

from rl_core.algorithms.custom import CustomFunction
from rl_core.algorithms.estimators import ESTIMATORS as ALL_ESTIMATORS
from rl_core.algorithms.losses import LOSSES as ALL_LOSSES
from rl_core.section import Choices


def built_in(choices: Choices) -> Choices:
    return {name: section for name, section in choices.items() if not issubclass(section, CustomFunction)}


LOSSES, ESTIMATORS = built_in(ALL_LOSSES), built_in(ALL_ESTIMATORS)
