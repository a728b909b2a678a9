"""A policy loss of the user's."""

from typing import Literal

from rl_core.algorithms.custom import CustomFunction
from rl_core.algorithms.policy_loss import PolicyLoss, PolicyLossSection, ResponseTokens


class CustomLoss(CustomFunction, PolicyLossSection):
    """A loss of your own: `f(tokens: ResponseTokens, **kwargs) -> PolicyLoss`, both described in
    rl_core/algorithms/policy_loss.py."""

    type: Literal["custom"] = "custom"
    """Selects a function of your own."""

    def loss(self, tokens: ResponseTokens) -> PolicyLoss:
        """What the function says.

        Raises:
            ValueError: it raised, or gave something else than a loss for each token.
        """
        given = self.call(tokens)
        if not isinstance(given, PolicyLoss):
            raise ValueError(f"{self.function} gave {type(given).__name__}, not a PolicyLoss")
        for name, values in {"per_token": given.per_token, **given.logged}.items():
            shape = tuple(getattr(values, "shape", ()))
            if shape != tuple(tokens.log_probs.shape):
                raise ValueError(
                    f"{self.function}: `{name}` has the shape {shape}, and there are {len(tokens.log_probs)} tokens: "
                    "give one value a token"
                )
        return given
