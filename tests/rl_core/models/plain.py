"""The slow, plain form of the policy's log-probs: the reference that the tree form is tested against."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from transformers import PreTrainedConfig, PreTrainedModel

from rl_core.families.patch_grid import PatchGrid
from rl_core.families.registry import vision_of
from rl_core.models.attention import set_attention
from rl_core.models.output_head import BANNED_LOGIT_BIAS
from rl_core.models.packing import TreeInput, prompt_positions
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel
from rl_core.models.tree_recurrence import BranchingLayer
from rl_core.types import Int32Array, Prompt


@contextmanager
def standard_attention(model: PreTrainedModel) -> Iterator[None]:
    """Inside the block the model runs its original forward pass, without trees. Activation checkpointing is off
    (evaluation mode), because it would run the forward pass again after the block."""
    branching = {module: type(module) for module in model.modules() if isinstance(module, BranchingLayer)}
    for module, tree_class in branching.items():
        module.__class__ = tree_class.__bases__[1]
    language = model.config.get_text_config()._attn_implementation
    vision = getattr(model.config, "vision_config", model.config)._attn_implementation
    was_training = model.training
    set_attention(model, language="sdpa", vision="sdpa")
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
        set_attention(model, language=language, vision=vision)
        for module, tree_class in branching.items():
            module.__class__ = tree_class


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


def plain_inputs(
    prompt: Prompt, response: Sequence[int] | Int32Array, *, pixels: PixelCache, config: PreTrainedConfig
) -> dict[str, torch.Tensor]:
    """What the stock forward of transformers takes for a prompt and (the beginning of) a response, on the CPU."""
    token_ids = torch.tensor([*prompt.token_ids, *response], dtype=torch.int64)[None]
    inputs: dict[str, torch.Tensor] = {"input_ids": token_ids}
    images, videos = pixels.get(prompt.image_uids), pixels.get_videos(prompt.videos)
    inputs |= pixels.forward_inputs(images, videos, torch.device("cpu"))
    if videos:
        # transformers lets the text after a video begin before the video's last step; papers and vLLM do not.
        positions = prompt_positions(prompt, images, videos, config)
        after = positions.max() + 1 + np.tile(np.arange(len(response)), (3, 1))
        inputs["position_ids"] = torch.from_numpy(np.concatenate([positions, after], axis=1))[:, None]
    elif images and isinstance(vision_of(config.model_type), PatchGrid):
        inputs["mm_token_type_ids"] = (token_ids == config.image_token_id).int()
    return inputs


@torch.no_grad()
def greedy_response(
    model: PreTrainedModel,
    prompt: Prompt,
    *,
    pixels: PixelCache,
    banned: Collection[int],
    stops: Collection[int],
    longest: int,
) -> list[int]:
    """The likeliest tokens, by a forward pass of transformers over the whole sequence for each of them."""
    response: list[int] = []
    while len(response) < longest and not {*response[-1:]} & {*stops}:
        inputs = plain_inputs(prompt, response, pixels=pixels, config=model.config)
        logits = model(**inputs, use_cache=False, logits_to_keep=1).logits[0, -1]
        logits[list(banned)] += BANNED_LOGIT_BIAS
        response.append(int(logits.argmax()))
    return response


def _rollout_log_probs(
    policy: PolicyModel, prompt: Prompt, response: Int32Array, *, pixels: PixelCache, temperature: float
) -> torch.Tensor:
    """[R] log-probs of one response."""
    inputs = plain_inputs(prompt, response, pixels=pixels, config=policy.config)
    inputs = {name: value.to(policy.device) for name, value in inputs.items()}
    start = len(prompt.token_ids)
    logits = policy.model(**inputs, use_cache=False).logits[0, start - 1 : -1].float()
    scores = torch.log_softmax((logits + policy.logit_bias) / temperature, dim=-1)
    return scores.gather(1, inputs["input_ids"][0, start:, None])[:, 0]
