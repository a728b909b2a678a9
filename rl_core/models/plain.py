"""The slow, plain form of the policy's log-probs: the reference that the tree form is tested against."""

from collections.abc import Sequence

import torch

from rl_core.models.attention import standard_attention
from rl_core.models.packing import TreeInput
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel
from rl_core.types import Int32Array, Prompt


def plain_log_probs(
    policy: PolicyModel, trees: Sequence[TreeInput], *, pixels: PixelCache, temperature: float
) -> torch.Tensor:
    """[K] log-probs with gradients, groups -> samples -> tokens, as the policy's forward gives them.

    Every rollout is a sequence of its own through the stock forward of transformers, with its own attention and
    position ids; the prompt and its images are computed again for each.
    """
    with standard_attention(policy.model):
        return torch.cat(
            [
                _rollout_log_probs(policy, tree.prompt, response, pixels=pixels, temperature=temperature)
                for tree in trees
                for response in tree.responses
            ]
        )


def _rollout_log_probs(
    policy: PolicyModel, prompt: Prompt, response: Int32Array, *, pixels: PixelCache, temperature: float
) -> torch.Tensor:
    """[R] log-probs of one response."""
    token_ids = torch.tensor([*prompt.token_ids, *response], dtype=torch.int64, device=policy.device)[None]
    inputs: dict[str, torch.Tensor] = {"input_ids": token_ids}
    images = pixels.get(prompt.image_uids)
    if images:
        inputs["pixel_values"] = torch.cat([image.values for image in images]).to(policy.device)
        inputs["image_grid_thw"] = torch.tensor([image.grid_thw for image in images], device=policy.device)
        inputs["mm_token_type_ids"] = (token_ids == policy.config.image_token_id).int()
    logits = policy.model(**inputs, use_cache=False).logits[0, len(prompt.token_ids) - 1 : -1].float()
    scores = torch.log_softmax((logits + policy.logit_bias) / temperature, dim=-1)
    return scores.gather(1, token_ids[0, len(prompt.token_ids) :, None])[:, 0]
