"""Rules between the options of the algorithm: combinations that cannot work or would have no effect."""

from collections.abc import Iterator

from rl_core.algorithms.losses.gspo import ResponseRatioLoss
from rl_core.config.run import RunConfig
from rl_core.problem import Problem


def algorithm_problems(config: RunConfig) -> Iterator[Problem]:
    """Every rule that the config breaks."""
    yield from _advantage_problems(config)
    yield from _critic_problems(config)
    yield from _filter_problems(config)
    yield from _kl_problems(config)
    yield from _off_policy_problems(config)
    if config.rollout.staleness:
        yield from _staleness_problems(config)


def _advantage_problems(config: RunConfig) -> Iterator[Problem]:
    advantage = config.algorithm.advantage
    if config.rollout.n < advantage.smallest_group:
        yield Problem(
            where="rollout.n",
            what=f"algorithm.advantage {advantage.type} compares a response with the others of its group, and there is "
            f"{config.rollout.n}",
            fix=f"set it to {advantage.smallest_group} or more, or algorithm.advantage.type to reinforce_plus_plus",
        )


def _critic_problems(config: RunConfig) -> Iterator[Problem]:
    advantage = config.algorithm.advantage
    needs_critic = advantage.uses_critic
    if needs_critic and config.critic is None:
        yield Problem(
            where="critic",
            what=f"algorithm.advantage {advantage.type} compares a reward with what a critic expected, and there is "
            "none",
            fix=f"add `critic: {{global_batch_size: {config.actor.global_batch_size}}}`, or set "
            "algorithm.advantage.type to grpo",
        )
    if not needs_critic and config.critic is not None:
        yield Problem(
            where="critic",
            what=f"algorithm.advantage {advantage.type} has no use for a critic",
            fix="set it to null, or algorithm.advantage.type to gae",
        )
    if config.critic is None and config.trainer.critic_warmup > 0:
        yield Problem(
            where="trainer.critic_warmup",
            what="there is no critic to warm up",
            fix="set it to 0, or add the section `critic`",
        )


def _filter_problems(config: RunConfig) -> Iterator[Problem]:
    filtering = config.algorithm.online_filtering
    if filtering is None:
        return
    if filtering.surplus == "keep" and config.algorithm.old_log_probs == "recompute":
        yield Problem(
            where="algorithm.online_filtering.surplus",
            what="a group of the surplus was drawn by earlier weights, so old_log_probs recompute would compute its "
            "log-probs with other weights, and the ratio would not show how old the group is",
            fix="set it to discard, or algorithm.old_log_probs to engine",
        )


def _kl_problems(config: RunConfig) -> Iterator[Problem]:
    kl = config.algorithm.kl
    if kl is None:
        return
    if kl.use_kl_loss and kl.penalty == "kl":
        yield Problem(
            where="algorithm.kl.penalty",
            what="the gradient of `kl` in the loss is zero on average, so it does not keep the policy near "
            "the reference",
            fix="set low_var_kl or mse, or algorithm.kl.use_kl_loss to false",
            fatal=False,
        )
    prompts, n = config.data.rollout_batch_size, config.rollout.n
    if kl.adaptive is not None and prompts * n > kl.adaptive.horizon:
        yield Problem(
            where="algorithm.kl.adaptive.horizon",
            what=f"a step has {prompts * n} responses (data.rollout_batch_size {prompts} x rollout.n {n}), more than "
            f"the horizon of {kl.adaptive.horizon:g} over which the coefficient follows the KL",
            fix=f"set it to {prompts * n} or more",
        )


def _off_policy_problems(config: RunConfig) -> Iterator[Problem]:
    algorithm = config.algorithm
    if (
        isinstance(algorithm.loss, ResponseRatioLoss)
        and algorithm.old_log_probs == "engine"
        and config.model.dtype == "bfloat16"
    ):
        yield Problem(
            where="algorithm.old_log_probs",
            what=f"the ratio of {algorithm.loss.type} is a mean over a response, with bounds of a few ten-thousandths. "
            "With engine it starts from the generator's log-probs, and the difference in rounding of generator and "
            "trainer in bfloat16 is larger than these bounds: most responses are clipped before the weights have moved",
            fix="set it to recompute, which starts from the trainer's own log-probs",
            fatal=False,
        )
    if algorithm.correction is not None and algorithm.old_log_probs == "engine":
        yield Problem(
            where="algorithm.correction",
            what="with old_log_probs engine the ratio already starts from the generator's log-probs, and every weight "
            "would be 1",
            fix="set algorithm.old_log_probs to recompute, or algorithm.correction to null",
        )


def _staleness_problems(config: RunConfig) -> Iterator[Problem]:
    """What cannot be learned from rollouts of earlier weights."""
    algorithm = config.algorithm
    if algorithm.old_log_probs == "recompute" and algorithm.correction is None:
        yield Problem(
            where="rollout.staleness",
            what="the rollouts come from earlier weights, and old_log_probs recompute gives them log-probs of later "
            "ones: without algorithm.correction the loss takes them for samples of these, and its gradient is biased",
            fix="set algorithm.old_log_probs to engine, add algorithm.correction, such as {type: tis}, or set it to 0",
        )
    if algorithm.advantage.uses_critic:
        yield Problem(
            where="rollout.staleness",
            what=f"the critic of algorithm.advantage {algorithm.advantage.type} would learn the returns of earlier "
            "weights, and no ratio corrects them",
            fix="set it to 0, or algorithm.advantage.type to an estimator without a critic, such as grpo",
        )
    if algorithm.advantage.uses_greedy:
        yield Problem(
            where="rollout.staleness",
            what=f"algorithm.advantage {algorithm.advantage.type} compares with greedy responses, which no record of a "
            "batch holds, so a run that continues would compare with those of later weights",
            fix="set it to 0, or algorithm.advantage.type to another estimator, such as rloo",
        )
