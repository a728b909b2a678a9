"""A user's policy loss."""

from typing import Literal

from rl_core.algorithms.custom import CustomFunction
from rl_core.algorithms.policy_loss import PolicyLoss, PolicyLossSection, ResponseTokens


class CustomLoss(CustomFunction, PolicyLossSection):
    """A loss of your own: `f(tokens: ResponseTokens, **kwargs) -> PolicyLoss`; both types are in
    rl_core/algorithms/policy_loss.py."""

    type: Literal["custom"] = "custom"

    def loss(self, tokens: ResponseTokens) -> PolicyLoss:
        """Raises ValueError if the function raised an exception, or did not return a loss for each token."""
        given = self.call(tokens)
        if not isinstance(given, PolicyLoss):
            raise ValueError(f"{self.function} returned {type(given).__name__}, not a PolicyLoss")
        for name, values in {"per_token": given.per_token, **given.logged}.items():
            shape = tuple(getattr(values, "shape", ()))
            if shape != tuple(tokens.log_probs.shape):
                raise ValueError(
                    f"{self.function}: `{name}` has the shape {shape}, but there are {len(tokens.log_probs)} tokens: "
                    "return one value for each token"
                )
        return given
