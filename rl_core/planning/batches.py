"""Batch arithmetic: from the config to steps, samples, token budgets and what each worker does
(docs/batch_sizes.md)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rl_core.config.run import RunConfig
from rl_core.config.training import UpdateConfig
from rl_core.planning.epoch_spans import START, DataPlace, EpochSpans
from rl_core.problem import Problem, raise_if_fatal


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchPlan:
    """The numbers that follow from the batch sizes.

    Attributes:
        prompts_per_draw: Prompts that are taken at a time; with group filtering they may be fewer than a step's.
        optimizer_steps_per_step: All PPO epochs together; only the first is exactly on-policy.
        steps_per_epoch: Whole rollout batches in the whole draws of an epoch, if group filtering kept every group.
        rows_left_out_per_epoch: Rows that fill no batch; if the rows are shuffled, they differ between epochs.
        epochs: Epochs that are begun.
        total_optimizer_steps: Those of the policy, without a cold start; there are none while the critic warms up.
        update_token_budget: Most tree tokens of a forward and backward pass.
        parts_per_longest_group: Micro-batches over which a group of the longest prompt and n longest responses is
            spread; each of them computes the prompt again.
    """

    train_rows: int
    prompts_per_step: int
    prompts_per_draw: int
    samples_per_step: int
    optimizer_steps_per_step: int
    samples_per_optimizer_step: int
    steps_per_epoch: int
    rows_left_out_per_epoch: int
    epochs: int
    total_steps: int
    total_optimizer_steps: int
    total_critic_steps: int
    update_token_budget: int
    parts_per_longest_group: int


def batch_plan(config: RunConfig, train_rows: int, *, since: DataPlace = START) -> BatchPlan:
    """The plan for `train_rows` prepared rows, of a training that has had them, in these batches, `since` a place.
    Raises PlanError with every batch size that does not fit."""
    raise_if_fatal([*divisibility_problems(config), *row_problems(config, train_rows)])
    prompts, n = config.data.rollout_batch_size, config.rollout.n
    spans = epoch_spans(config, train_rows, since=since)
    total_steps = config.trainer.max_steps or spans.end(config.trainer.total_epochs)
    optimizer_steps = optimizer_steps_per_step(config, config.actor)
    return BatchPlan(
        train_rows=train_rows,
        prompts_per_step=prompts,
        prompts_per_draw=prompts_per_draw(config),
        samples_per_step=prompts * n,
        optimizer_steps_per_step=optimizer_steps,
        samples_per_optimizer_step=config.actor.global_batch_size * n,
        steps_per_epoch=spans.steps,
        rows_left_out_per_epoch=train_rows - spans.steps * prompts,
        epochs=spans.epoch_of(total_steps),
        total_steps=total_steps,
        total_optimizer_steps=max(0, total_steps - _steps_before_policy(config)) * optimizer_steps,
        total_critic_steps=total_steps * optimizer_steps_per_step(config, config.critic) if config.critic else 0,
        update_token_budget=update_token_budget(config),
        parts_per_longest_group=_parts_per_longest_group(config),
    )


def most_passes(config: RunConfig, plan: BatchPlan, groups: int) -> int:
    """A learner's forward and backward passes over so many groups, if all prompts and responses are as long as they may
    be."""
    at_once = plan.update_token_budget // longest_tree(config)
    return math.ceil(groups / at_once) if at_once else groups * plan.parts_per_longest_group


def prompts_per_draw(config: RunConfig) -> int:
    """Prompts that are taken from the loader at a time."""
    filtering = config.algorithm.online_filtering
    return (filtering.mini_rollout_batch_size if filtering else None) or config.data.rollout_batch_size


def steps_per_epoch(config: RunConfig, train_rows: int) -> int:
    """Training steps of an epoch. Group filtering does not change it: what it leaves out is made up from the rows of
    the next epoch."""
    draw = prompts_per_draw(config)
    return train_rows // draw * draw // config.data.rollout_batch_size


def epoch_spans(config: RunConfig, train_rows: int, *, since: DataPlace = START) -> EpochSpans:
    """Which steps belong to which epoch, for a training that has these rows and this batch size `since` a place."""
    return EpochSpans(steps=steps_per_epoch(config, train_rows), batch=config.data.rollout_batch_size, since=since)


def optimizer_steps_per_step(config: RunConfig, owner: UpdateConfig) -> int:
    """Optimizer steps of one training step of the policy or the critic, all PPO epochs together."""
    return config.data.rollout_batch_size // owner.global_batch_size * owner.ppo_epochs


def _steps_before_policy(config: RunConfig) -> int:
    """Number of steps that train the critic alone."""
    return max(0, config.trainer.critic_warmup - 1)


def longest_sequence(config: RunConfig) -> int:
    """Longest prompt and longest response together, in tokens."""
    return config.longest_prompt + config.longest_response


def longest_tree(config: RunConfig) -> int:
    """Longest prompt and as many longest responses as a group has, in tokens."""
    return config.longest_prompt + config.rollout.n * config.longest_response


def update_token_budget(config: RunConfig) -> int:
    """Most tree tokens of a forward-backward pass of the policy."""
    return longest_sequence(config) * config.actor.update_sequences


def divisibility_problems(config: RunConfig) -> list[Problem]:
    """Every batch size that does not divide the batch size that it must divide."""
    owners: dict[str, UpdateConfig | None] = {"actor": config.actor, "critic": config.critic}
    rollout = config.data.rollout_batch_size
    return [
        Problem(
            where="data.rollout_batch_size",
            what=f"a step of {rollout} prompts does not split into optimizer steps of {owner.global_batch_size} "
            f"({name}.global_batch_size): {rollout % owner.global_batch_size} are left over",
            fix=f"set it to a multiple of {owner.global_batch_size}, or {name}.global_batch_size to a divisor of it",
        )
        for name, owner in owners.items()
        if owner is not None and rollout % owner.global_batch_size
    ]


def row_problems(config: RunConfig, train_rows: int) -> list[Problem]:
    """Every setting that does not fit the number of training rows."""
    batch, draw = config.data.rollout_batch_size, prompts_per_draw(config)
    if steps := steps_per_epoch(config, train_rows):
        return _pace_problems(config, steps)
    if train_rows >= batch:
        return [
            Problem(
                where="algorithm.online_filtering.mini_rollout_batch_size",
                what=f"whole draws of {draw} of the {train_rows} training rows give "
                f"{train_rows // draw * draw} prompts an epoch, and a step takes {batch}",
                fix=f"set it to a divisor of {batch}, or leave it out",
            )
        ]
    return [
        Problem(
            where="data.rollout_batch_size",
            what=f"a step of {batch} prompts is more than the {train_rows} training rows, so no step can be made",
            fix=f"set data.rollout_batch_size to {train_rows} or less" if train_rows else "give data.train usable rows",
        )
    ]


def _pace_problems(config: RunConfig, steps_per_epoch: int) -> list[Problem]:
    """Warm-up, validation and checkpoints that do not fit the length of the run."""
    trainer = config.trainer
    steps = trainer.max_steps or trainer.total_epochs * steps_per_epoch
    problems = [*_warmup_problems(config, steps)]
    # Saved are the multiples of these numbers, and the last step.
    saved_every = [trainer.save_freq, *([steps_per_epoch] if trainer.save_on_epoch_end else [])]
    if config.merge.checkpoint == "best" and trainer.val_freq > 0:
        first = min(math.lcm(trainer.val_freq, every) for every in saved_every)
        if first > steps and steps % trainer.val_freq:
            problems.append(
                Problem(
                    where="merge.checkpoint",
                    what=f"`best` needs a step that is validated (every {trainer.val_freq}) and saved (every "
                    f"{' and every '.join(map(str, saved_every))}, and the last one); of {steps} steps none is both",
                    fix=f"set trainer.val_freq to {min(*saved_every, steps)}",
                )
            )
    return problems


def _warmup_problems(config: RunConfig, steps: int) -> Iterator[Problem]:
    """Learning rates that are never reached, and a policy that is never trained, in `steps` steps."""
    if (policy_steps := steps - _steps_before_policy(config)) < 1:
        yield Problem(
            where="trainer.critic_warmup",
            what=f"the run has {steps} steps, so the policy is never trained",
            fix=f"set it to {steps // 10} or so",
        )
        return
    yield from _never_reached("actor", config.actor, config, policy_steps)
    if config.critic is not None:
        yield from _never_reached("critic", config.critic, config, steps)


def _never_reached(name: str, owner: UpdateConfig, config: RunConfig, steps: int) -> Iterator[Problem]:
    optimizer_steps = steps * max(1, optimizer_steps_per_step(config, owner))
    if owner.optim.lr_warmup_steps >= optimizer_steps:
        yield Problem(
            where=f"{name}.optim.lr_warmup_steps",
            what=f"the warm-up of {owner.optim.lr_warmup_steps} optimizer steps is as long as the run, "
            f"which has {optimizer_steps}: {name}.optim.lr is never reached",
            fix=f"set it to {optimizer_steps // 10} or so",
            fatal=False,
        )


def _parts_per_longest_group(config: RunConfig) -> int:
    budget = update_token_budget(config)
    responses_per_part = (budget - config.longest_prompt) // config.longest_response
    return math.ceil(config.rollout.n / responses_per_part)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerShare:
    """How a step is dealt: the number of generators, and the most prompts that one of them answers; the number of
    learners, and the most groups of an optimizer step that one of them computes. What two get differs by one if all are
    equally large; otherwise they are balanced by size."""

    engines: int
    learners: int
    prompts: int
    groups: int

    @classmethod
    def of(cls, config: RunConfig) -> "WorkerShare":
        """The shares of a run's workers."""
        cluster = config.cluster
        engines = cluster.generators // cluster.tensor_parallel_size
        learners = cluster.trainers // cluster.sequence_parallel_size
        return cls(
            engines=engines,
            learners=learners,
            prompts=-(-config.data.rollout_batch_size // engines),
            groups=-(-config.actor.global_batch_size // learners),
        )
