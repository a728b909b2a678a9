"""How large the passes of the trainer are: the tokens and patches of the largest micro-batch."""

from dataclasses import dataclass
from typing import Final

from rl_core.config.run import RunConfig
from rl_core.config.training import ActorConfig, CriticConfig, experience_sequences, update_sequences
from rl_core.planning.batches import longest_sequence
from rl_core.planning.model_sizes import ModelSizes

PATCHES_A_TOKEN: Final = 4
"""Patches of an image that become one token, in every family (spatial_merge_size 2)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """A pass over a micro-batch.

    Attributes:
        tokens: Tree tokens.
        targets: Response tokens, of which the output head computes logits.
        patches: Patches of images; 0 for a text model.
        keys: Keys that the responses attend to, for each tree token: each response has its own copies of those of its
            prompt.
    """

    tokens: int
    targets: int
    patches: int
    keys: float


def update_pass(
    config: RunConfig, sizes: ModelSizes, owner: ActorConfig | CriticConfig, *, response: int | None
) -> Pass:
    """The largest pass with a gradient, of policy or critic.

    Its tokens are those of the budget, but no more than all responses to the prompts of an optimizer batch have. With
    responses of `response` tokens there are as many prompts as fit. None stands for the worst of all lengths: the
    shorter responses are, the more images a pass has, and the longer they are, the more logits.
    """
    return _largest(config, sizes, _update_tokens(config, owner), most_trees=owner.global_batch_size, response=response)


def experience_pass(config: RunConfig, sizes: ModelSizes, *, response: int | None) -> Pass:
    """The largest pass without a gradient."""
    tokens = longest_sequence(config) * experience_sequences(config.actor)
    whole = config.data.rollout_batch_size * _longest_tree(config)
    return _largest(config, sizes, min(tokens, whole), most_trees=config.data.rollout_batch_size, response=response)


def _update_tokens(config: RunConfig, owner: ActorConfig | CriticConfig) -> int:
    return min(longest_sequence(config) * update_sequences(owner), owner.global_batch_size * _longest_tree(config))


def _longest_tree(config: RunConfig) -> int:
    return config.data.max_prompt_length + config.rollout.n * config.rollout.max_response_length


def _largest(config: RunConfig, sizes: ModelSizes, tokens: int, *, most_trees: int, response: int | None) -> Pass:
    """Prompts are taken to be as long as they may be, and to consist of images."""
    prompt, n, shortest = config.data.max_prompt_length, config.rollout.n, response or 1
    trees = min(most_trees, max(1, tokens // (prompt + n * shortest)))
    return Pass(
        tokens=tokens,
        targets=tokens if response is None else min(tokens, trees * n * response),
        patches=trees * prompt * PATCHES_A_TOKEN if sizes.vision_parameters else 0,
        keys=n * (prompt + shortest) / (prompt + n * shortest),
    )
