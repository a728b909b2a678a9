"""GSPO-token: GSPO's ratio, with the gradient of each token's own log-prob (arXiv 2507.18071, section 4.3)."""

from typing import Literal

from rl_core.algorithms.losses.gspo import ResponseRatioLoss, response_means
from rl_core.algorithms.policy_loss import PolicyLoss, ResponseTokens


class GSPOTokenLoss(ResponseRatioLoss):
    """GSPO-token (arXiv 2507.18071): the ratio of a whole response with the gradient of each token's own log-prob, for
    advantages that differ between tokens (published bounds: 3e-4 and 4e-4)."""

    type: Literal["gspo_token"] = "gspo_token"

    def loss(self, tokens: ResponseTokens) -> PolicyLoss:
        """The ratio is sg[s] pi / sg[pi], with GSPO's ratio s."""
        means = response_means(tokens.log_ratio.detach(), tokens)
        log_ratio = means + tokens.log_probs - tokens.log_probs.detach()
        return self.pessimistic(log_ratio, tokens.advantages)
