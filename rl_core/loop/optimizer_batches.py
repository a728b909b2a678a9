"""The optimizer batches of a step: which groups an optimizer step learns from."""

from collections.abc import Sequence

from rl_core.config.run import RunConfig
from rl_core.config.training import ActorConfig, CriticConfig
from rl_core.training.batches import OptimizerBatch, UpdateBatch
from rl_core.training.microbatches import AnyGroup
from rl_core.types import Prompt, TrainGroup


def update_batch(
    groups: Sequence[TrainGroup], prompts: Sequence[Prompt], *, step: int, config: RunConfig, kl_coef: float | None
) -> UpdateBatch:
    """The optimizer batches of policy and critic; each has its own batch size and number of PPO epochs. The policy has
    none in the steps before `trainer.critic_warmup`, and a batch without any sample in the loss is left out."""

    def batches(owner: ActorConfig | CriticConfig) -> list[OptimizerBatch]:
        parts = split_by_optimizer_step(groups, prompts, global_batch_size=owner.global_batch_size)
        longest = config.rollout.max_response_length
        batches = [OptimizerBatch.of(part, longest_response=longest) for part in parts]
        return [batch for batch in batches if batch.totals.sequences] * owner.ppo_epochs

    return UpdateBatch(
        policy=batches(config.actor) if step >= config.trainer.critic_warmup else [],
        critic=[] if config.critic is None else batches(config.critic),
        kl_coef=kl_coef,
    )


def split_by_optimizer_step(
    groups: Sequence[AnyGroup], prompts: Sequence[Prompt], *, global_batch_size: int
) -> list[list[AnyGroup]]:
    """Groups by optimizer step, in the order of the loader: `global_batch_size` prompts each, without the groups that
    were left out. A step without any group is left out."""
    by_uid = {group.prompt.uid: group for group in groups}
    chunks = [prompts[i : i + global_batch_size] for i in range(0, len(prompts), global_batch_size)]
    parts = [[by_uid[prompt.uid] for prompt in chunk if prompt.uid in by_uid] for chunk in chunks]
    return [part for part in parts if part]
