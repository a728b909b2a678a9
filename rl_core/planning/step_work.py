"""The work of a training step: what has to be computed, whatever computes it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Final, Self

from rl_core.config.run import RunConfig
from rl_core.config.training import ActorConfig, CriticConfig
from rl_core.planning.batches import optimizer_steps_a_step

USUAL_SHARE: Final = 0.5
"""How long prompts and responses are taken to be on average, as a share of the longest that the config allows, where
nothing else is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """How long prompts and responses are, in tokens.

    Attributes:
        prompt: Mean length of a prompt.
        response: Mean length of a response.
        longest: Length of the longest response of a step.
    """

    prompt: float
    response: float
    longest: float

    @classmethod
    def assumed(cls, config: RunConfig) -> Self:
        """Lengths before any was measured: those of the section `planning`, else `USUAL_SHARE` of the longest, and some
        response as long as it may be."""
        expected, longest = config.planning, config.rollout.max_response_length
        prompt = expected.mean_prompt_length or USUAL_SHARE * config.data.max_prompt_length
        response = expected.mean_response_length or USUAL_SHARE * longest
        return cls(prompt=prompt, response=response, longest=max(response, float(longest)))

    @classmethod
    def mean_of(cls, steps: Sequence[Self]) -> Self:
        """The mean of the lengths of some steps."""
        return cls(
            prompt=mean(step.prompt for step in steps),
            response=mean(step.response for step in steps),
            longest=mean(step.longest for step in steps),
        )

    def with_responses(self, mean: float) -> Self:
        """The same with responses of another mean length."""
        return replace(self, response=mean, longest=max(mean, self.longest))


@dataclass(frozen=True, kw_only=True, slots=True)
class Updates:
    """The optimizer steps of the policy or the critic in a step.

    Attributes:
        steps: Their number, all PPO epochs together.
        groups: Groups of each.
    """

    steps: int
    groups: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StepWork:
    """The work of a step. What a group filter draws beyond the rollout batch is not known, and not counted.

    Attributes:
        prompts: Prompts of the rollout batch.
        n: Responses to each of them, a greedy one included.
        lengths: Their lengths.
        updates: The optimizer steps of the policy, and of the critic if there is one.
        forwards: Passes without a gradient over all groups: old log-probs, reference, values.
    """

    prompts: int
    n: int
    lengths: Lengths
    updates: tuple[Updates, ...]
    forwards: int

    @classmethod
    def of(cls, config: RunConfig, lengths: Lengths) -> Self:
        """The work that a config asks for, with responses of these lengths."""
        algorithm, critic = config.algorithm, config.critic
        owners: list[ActorConfig | CriticConfig] = [config.actor] if critic is None else [config.actor, critic]
        return cls(
            prompts=config.data.rollout_batch_size,
            n=config.rollout.n + int(algorithm.advantage.uses_greedy),
            lengths=lengths,
            updates=tuple(
                Updates(steps=optimizer_steps_a_step(config, owner), groups=owner.global_batch_size) for owner in owners
            ),
            forwards=sum((algorithm.old_log_probs == "recompute", algorithm.kl is not None, critic is not None)),
        )

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps of policy and critic."""
        return sum(update.steps for update in self.updates)

    @property
    def group_tokens(self) -> float:
        """Tree tokens of a group: its prompt once, and its responses."""
        return self.lengths.prompt + self.n * self.lengths.response
