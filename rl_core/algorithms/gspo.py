"""GSPO: the importance ratio of a whole response, normalised by its length (arXiv 2507.18071)."""

import torch

from rl_core.algorithms.policy_loss import LossOptions, PolicyLoss, ResponseTokens, clip_pessimistically


def gspo_policy_loss(tokens: ResponseTokens, options: LossOptions) -> PolicyLoss:
    """Each token has its response's ratio s = exp(mean log-ratio), and the gradient flows through the mean.

    Reads the three clip ratios; s stays near 1, so that the published bounds are 3e-4 and 4e-4.
    """
    return clip_pessimistically(sequence_means(tokens.log_ratio, tokens), tokens.advantages, options)


def gspo_token_policy_loss(tokens: ResponseTokens, options: LossOptions) -> PolicyLoss:
    """GSPO's ratio as a value, each token's own gradient: sg[s] pi / sg[pi], for advantages that differ by token.

    Reads the three clip ratios.
    """
    means = sequence_means(tokens.log_ratio.detach(), tokens)
    log_ratio = means + tokens.log_probs - tokens.log_probs.detach()
    return clip_pessimistically(log_ratio, tokens.advantages, options)


def sequence_means(values: torch.Tensor, tokens: ResponseTokens) -> torch.Tensor:
    """[K]: at every token the mean of `values` ([K]) over its response."""
    lengths = torch.tensor(tokens.lengths, device=values.device)
    return torch.segment_reduce(values, "mean", lengths=lengths).repeat_interleave(lengths)
