"""From prompts to generation requests, and from rollouts back to groups."""

from collections.abc import Iterable, Sequence

from rl_core.randomness import keyed_seed
from rl_core.types import GenerationRequest, Group, Prompt, Rollout


def requests_for(prompts: Sequence[Prompt], n: int, *, run_seed: int, step: int) -> list[GenerationRequest]:
    """n requests for each prompt. Each has a seed keyed by (run seed, step, prompt, sample), so that no two samples use
    the same random numbers."""
    return [
        GenerationRequest(
            prompt=prompt,
            sample_index=index,
            seed=keyed_seed(run_seed, "rollout", step, prompt.uid, index),
            group_seed=keyed_seed(run_seed, "environment", step, prompt.uid),
        )
        for prompt in prompts
        for index in range(n)
    ]


def collect_groups(prompts: Sequence[Prompt], rollouts: Iterable[Rollout], n: int) -> list[Group]:
    """Order rollouts, which come as they finish, by prompt and sample. Raises RuntimeError if one is missing, came
    twice, or was not requested."""
    by_key: dict[tuple[str, int], Rollout] = {}
    for rollout in rollouts:
        if rollout.key in by_key:
            raise RuntimeError(f"the generator gave sample {rollout.sample_index} of prompt {rollout.prompt_uid} twice")
        by_key[rollout.key] = rollout
    wanted = {(prompt.uid, index) for prompt in prompts for index in range(n)}
    if by_key.keys() != wanted:
        missing, extra = sorted(wanted - by_key.keys()), sorted(by_key.keys() - wanted)
        raise RuntimeError(
            f"the generator left out {missing[:3]} and added {extra[:3]} ({len(by_key)} rollouts in total)"
        )
    return [Group.of(prompt, [by_key[prompt.uid, i] for i in range(n)]) for prompt in prompts]
