"""Every rule that a config must keep before a run starts. What a section knows of itself is in its class; here are the
rules between sections, and the order in which all of them are asked."""

from collections.abc import Iterator

from rl_core.algorithms.losses.gspo import ResponseRatioLoss
from rl_core.config.run import RunConfig
from rl_core.config.tolerances import AGREEMENT, PROBE, agreement_bounds, merge_tolerance
from rl_core.environment import usable_memory
from rl_core.planning.batches import divisibility_problems, prompts_per_draw, row_problems
from rl_core.planning.gpu import Gpu
from rl_core.planning.hub import offline_problems
from rl_core.planning.machine_rules import file_problems, machine_problems, model_path_problems
from rl_core.planning.memory_rows import GIB
from rl_core.planning.memory_rules import memory_problems
from rl_core.planning.model_rules import model_problems
from rl_core.planning.model_sizes import ModelSizes, model_sizes
from rl_core.problem import Problem
from rl_core.section import problems_in

# The least difference of log-probs between two processes with the same bfloat16 weights: of a token, and of the mean.
_BFLOAT16_GAP = 1e-2
_BFLOAT16_MEAN_GAP = 1e-3


def check_config(config: RunConfig, *, gpu: Gpu | None = None) -> list[Problem]:
    """Every problem of the configuration on this machine with this GPU, if any, warnings included. Problems that only
    the data shows (bad rows, a reward that fails on true answers) are found where the data is read."""
    rows = config.data.train.known_rows
    return [
        *value_problems(config),
        *([] if rows is None else row_problems(config, rows)),
        *file_problems(config),
        *offline_problems(config),
        *(model_path_problems(config) or _size_problems(config, gpu)),
        *machine_problems(config, gpu),
    ]


def value_problems(config: RunConfig) -> list[Problem]:
    """Problems between the values of the config, on whatever machine."""
    return [
        *problems_in(config),
        *divisibility_problems(config),
        *_checkpoint_problems(config),
        *_precision_problems(config),
        *_estimator_problems(config),
        *_old_log_prob_problems(config),
        *_staleness_problems(config),
        *_reward_problems(config),
        *_overlap_problems(config),
        *_idle_problems(config),
    ]


def _size_problems(config: RunConfig, gpu: Gpu | None) -> list[Problem]:
    try:
        sizes = model_sizes(config.model.source)
    except ValueError as error:
        return [Problem("model.source", str(error), "name another checkpoint, or correct its config.json")]
    if sizes is None:
        return []
    return [*model_problems(config, sizes, on_gpu=gpu is not None), *_memory_problems(config, sizes, gpu)]


def _memory_problems(config: RunConfig, sizes: ModelSizes, gpu: Gpu | None) -> list[Problem]:
    host = usable_memory() / GIB
    if gpu is None:
        return memory_problems(config, sizes, available_gib=host, on_gpu=False)
    if gpu.memory_gib is not None:
        there = None if gpu.is_elsewhere else host
        return memory_problems(config, sizes, available_gib=gpu.memory_gib, on_gpu=True, host_gib=there)
    return [
        Problem(
            "memory of the GPU",
            "the driver does not tell how much there is, so it is not known whether the run fits",
            "compare it with the forecast of `sightline plan`",
            fatal=False,
        )
    ]


def _checkpoint_problems(config: RunConfig) -> Iterator[Problem]:
    trainer = config.trainer
    if config.merge.checkpoint == "best" and trainer.val_freq < 0:
        # The steps of an epoch are not known here, but there is one at least, and the last step is always saved.
        validated = min(trainer.save_freq, trainer.max_steps or trainer.total_epochs)
        yield Problem(
            "merge.checkpoint",
            "`best` is chosen by validation, and trainer.val_freq -1 never validates",
            f"set trainer.val_freq to {validated}, or merge.checkpoint to last",
        )


def _precision_problems(config: RunConfig) -> Iterator[Problem]:
    """Tolerances that are too small for bfloat16, which rounds to three digits: they would stop every run; and
    optimizers for bfloat16 weights although the weights are float32."""
    if config.model.dtype == "float32":
        owners = {"actor": config.actor, "critic": config.critic, "cold_start": config.cold_start}
        for owner, section in owners.items():
            if section is not None and section.optim.strategy == "adamw_bf16":
                yield Problem(
                    f"{owner}.optim.strategy",
                    "adamw_bf16 is for bfloat16 weights, and model.dtype is float32",
                    "set it to adamw, or model.dtype to bfloat16",
                )
        return
    found, usual = agreement_bounds(config), AGREEMENT["bfloat16"]
    bounds = {
        "rollout.max_log_prob_gap": (found.percentile, _BFLOAT16_GAP, usual.percentile),
        "rollout.max_mean_log_prob_gap": (found.mean, _BFLOAT16_MEAN_GAP, usual.mean),
        "merge.probe_tolerance": (merge_tolerance(config).largest, _BFLOAT16_GAP, PROBE["bfloat16"]),
    }
    for key, (bound, reproduced, advised) in bounds.items():
        if bound < reproduced:
            yield Problem(
                key,
                f"{bound:g} is less than what model.dtype bfloat16 reproduces (about {reproduced:g})",
                f"set it to {advised:g}, or model.dtype to float32",
            )


def _estimator_problems(config: RunConfig) -> Iterator[Problem]:
    """Groups that are too small for the estimator, a critic that is missing or has no use, and a KL coefficient that
    follows too slowly."""
    advantage, kl = config.algorithm.advantage, config.algorithm.kl
    if config.rollout.n < advantage.smallest_group:
        yield Problem(
            "rollout.n",
            f"algorithm.advantage {advantage.type} compares a response with the others of its group, and there is "
            f"{config.rollout.n}",
            f"set it to {advantage.smallest_group} or more, or algorithm.advantage.type to reinforce_plus_plus",
        )
    if advantage.uses_critic and config.critic is None:
        yield Problem(
            "critic",
            f"algorithm.advantage {advantage.type} compares a reward with what a critic expected, and there is none",
            f"add `critic: {{global_batch_size: {config.actor.global_batch_size}}}`, or set algorithm.advantage.type "
            "to grpo",
        )
    if not advantage.uses_critic and config.critic is not None:
        yield Problem(
            "critic",
            f"algorithm.advantage {advantage.type} has no use for a critic",
            "set it to null, or algorithm.advantage.type to gae",
        )
    if config.critic is None and config.trainer.critic_warmup > 0:
        yield Problem(
            "trainer.critic_warmup", "there is no critic to warm up", "set it to 0, or add the section `critic`"
        )
    prompts, n = config.data.rollout_batch_size, config.rollout.n
    if kl is not None and kl.adaptive is not None and prompts * n > kl.adaptive.horizon:
        yield Problem(
            "algorithm.kl.adaptive.horizon",
            f"a step has {prompts * n} responses (data.rollout_batch_size {prompts} x rollout.n {n}), more than the "
            f"horizon of {kl.adaptive.horizon:g} over which the coefficient follows the KL",
            f"set it to {prompts * n} or more",
        )


def _old_log_prob_problems(config: RunConfig) -> Iterator[Problem]:
    loss = config.algorithm.loss
    starts_from_generator = config.algorithm.old_log_probs == "engine"
    if isinstance(loss, ResponseRatioLoss) and starts_from_generator and config.model.dtype == "bfloat16":
        yield Problem(
            "algorithm.old_log_probs",
            f"the ratio of {loss.type} is a mean over a response, with bounds of a few ten-thousandths. With engine it "
            "starts from the generator's log-probs, and the difference in rounding of generator and trainer in "
            "bfloat16 is larger than these bounds: most responses are clipped before the weights have moved",
            "set it to recompute, which starts from the trainer's own log-probs",
            fatal=False,
        )


def _staleness_problems(config: RunConfig) -> Iterator[Problem]:
    """What cannot be learned from rollouts of earlier weights, and workers that wait for each other without them."""
    algorithm = config.algorithm
    if not config.rollout.staleness:
        if config.cluster.is_split:
            yield Problem(
                "rollout.staleness",
                "with 0 and cluster.placement split, the workers that generate wait while the others train, and these "
                "wait for them",
                "set it to 1, so that both work at the same time, or cluster.placement to colocated",
                fatal=False,
            )
        return
    if algorithm.old_log_probs == "recompute" and algorithm.correction is None:
        yield Problem(
            "rollout.staleness",
            "the rollouts come from earlier weights, and old_log_probs recompute gives them log-probs of later ones: "
            "without algorithm.correction the loss takes them for samples of these, and its gradient is biased",
            "set algorithm.old_log_probs to engine, add algorithm.correction, such as {type: tis}, or set it to 0",
        )
    if algorithm.advantage.uses_critic:
        yield Problem(
            "rollout.staleness",
            f"the critic of algorithm.advantage {algorithm.advantage.type} would learn the returns of earlier weights, "
            "and no ratio corrects them",
            "set it to 0, or algorithm.advantage.type to an estimator without a critic, such as grpo",
        )
    if algorithm.advantage.uses_greedy:
        yield Problem(
            "rollout.staleness",
            f"algorithm.advantage {algorithm.advantage.type} compares with greedy responses, which no record of a "
            "batch holds, so a run that continues would compare with those of later weights",
            "set it to 0, or algorithm.advantage.type to another estimator, such as rloo",
        )


def _reward_problems(config: RunConfig) -> Iterator[Problem]:
    """Components that are asked for and that no reward returns, as far as that is known without calling it; and an
    overlong penalty, which gets the longest response as an argument, as published, with another limit than the
    generator's."""
    read = {"evaluation.accuracy_key": config.evaluation.accuracy_key}
    filtering = config.algorithm.online_filtering
    if filtering is not None and filtering.component is not None:
        read["algorithm.online_filtering.filter_key"] = filtering.component
    for key, choice in config.reward.choices():
        returned = choice.components if choice.terms else None
        for reader, component in read.items():
            if returned is not None and component not in returned:
                yield Problem(
                    reader,
                    f"{key} never returns a component {component!r}; it returns {', '.join(returned)}",
                    "name one of them",
                )
    limit = config.rollout.max_response_length
    for key, term in config.reward.keyed_terms():
        assumed = term.kwargs.get("max_response_length")
        if term.function in ("dapo", "overlong") and assumed not in (None, limit):
            yield Problem(
                key,
                f"its max_response_length is {assumed}, and responses end at rollout.max_response_length {limit}",
                f"set kwargs.max_response_length to {limit}",
                fatal=False,
            )


def _overlap_problems(config: RunConfig) -> Iterator[Problem]:
    """Held-out rows that training or the cold start would see too."""
    sources = list(config.sources())
    seen = [(key, source) for key, source in sources if not key.startswith("data.validation")]
    for held_out_key, held_out in sources:
        for key, source in seen if held_out_key.startswith("data.validation") else ():
            if (reason := source.shared_with(held_out)) is not None:
                yield Problem(
                    held_out_key,
                    f"its images would also be in {key}: {reason}",
                    "give it other rows, so that the accuracy measures what was not seen",
                )


def _idle_problems(config: RunConfig) -> Iterator[Problem]:
    """Batches with fewer prompts than workers: a prompt with its responses is computed by one of them."""
    learners, critic = config.cluster.trainers // config.cluster.sequence_parallel_size, config.critic
    batches = {
        "data.rollout_batch_size": prompts_per_draw(config),
        "actor.global_batch_size": config.actor.global_batch_size,
        **({} if critic is None else {"critic.global_batch_size": critic.global_batch_size}),
    }
    for key, prompts in batches.items():
        if prompts < learners:
            yield Problem(
                key,
                f"{prompts} prompt(s) at a time for {learners} workers leave {learners - prompts} of them without work",
                "raise it, or lower cluster.devices or cluster.nodes",
                fatal=False,
            )
