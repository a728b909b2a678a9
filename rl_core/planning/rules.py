"""Every rule that a config must keep before a run starts. What a section knows of itself is in its class; here are the
rules between sections, those between a config and the sizes of its model, and the order in which all are asked."""

import re
from collections.abc import Collection, Iterator
from typing import Final

from rl_core.algorithms.losses.gspo import ResponseRatioLoss
from rl_core.config.model import LoraConfig, ModelConfig, TinyModel
from rl_core.config.reward import component_of
from rl_core.config.run import RunConfig
from rl_core.config.tolerances import AGREEMENT, PROBE, agreement_bounds, merge_tolerance
from rl_core.cpu_switches import CPU_ENGINE, is_on
from rl_core.environment import usable_memory
from rl_core.families.family import Family
from rl_core.families.own import WrongFamily
from rl_core.families.registry import family_of, vision_modules
from rl_core.planning.batches import divisibility_problems, longest_sequence, prompts_per_draw, row_problems
from rl_core.planning.certificates import certificate_problem
from rl_core.planning.gpu import Gpu, attention_choice
from rl_core.planning.hub import offline_problems
from rl_core.planning.machine_rules import file_problems, machine_problems
from rl_core.planning.memory_rows import GIB
from rl_core.planning.memory_rules import memory_problems
from rl_core.planning.model_sizes import NO_SHARED_STATE, ModelSizes, check_source, model_sizes
from rl_core.planning.training_state import is_adapted
from rl_core.problem import Problem
from rl_core.section import problems_in
from rl_core.wording import shortened

VLLM_RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks for which vLLM reserves memory; an adapter may have a lower one (vllm.config.lora.MaxLoRARanks)."""

_CPU_HEAD_SIZES: Final = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""What vLLM 0.32 has attention kernels for on a CPU (get_supported_head_sizes in its cpu_attn.py)."""

_LARGEST_HEAD: Final = 256
"""Of FlashAttention-2, and of PyTorch's kernels for sequences of different lengths, which are the same."""

_SHOWN = 3

# The least difference of log-probs between two processes with the same bfloat16 weights: of a token, and of the mean.
_BFLOAT16_GAP = 1e-2
_BFLOAT16_MEAN_GAP = 1e-3


def check_config(config: RunConfig, *, gpu: Gpu | None = None) -> list[Problem]:
    """Every problem of the configuration on this machine with this GPU, if any, warnings included. Problems that only
    the data shows (bad rows, a reward that fails on true answers) are found where the data is read."""
    found = quick_problems(config)
    is_unusable = any(problem.where in ("model.source", "model.family") for problem in found)
    sized = [] if is_unusable else _size_problems(config, gpu)
    return [*found, *sized, *machine_problems(config, gpu)]


def quick_problems(config: RunConfig) -> list[Problem]:
    """Those of them for which neither the sizes of the model, which may take seconds to find, nor the machine need be
    known."""
    rows = config.data.train.known_rows
    return [
        *value_problems(config),
        *([] if rows is None else row_problems(config, rows)),
        *file_problems(config),
        *offline_problems(config),
        *_source_problems(config.model),
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
        *_idle_problems(config),
        *_tool_problems(config),
    ]


def _tool_problems(config: RunConfig) -> Iterator[Problem]:
    """Parts of pictures that show no more than the pictures themselves."""
    if config.tools is not None and "zoom" in config.tools.use and config.data.max_source_pixels is None:
        yield Problem(
            "data.max_source_pixels",
            "zoom cuts its parts from the pictures as the prompt shows them, because larger ones are not kept",
            "set it to the area of the pictures, such as 16777216",
            fatal=False,
        )


def _source_problems(model: ModelConfig) -> Iterator[Problem]:
    if model.family is not None and isinstance(model.source, TinyModel):
        return  # its section says so
    problem: Problem | None
    try:
        check_source(model.source)
        problem = certificate_problem(model.source)
    except WrongFamily as error:
        problem = Problem("model.family", str(error), "name a Family of rl_core.families.family for this architecture")
    except ValueError as error:
        problem = _no_checkpoint(error)
    if problem is not None:
        yield problem


def _no_checkpoint(error: ValueError) -> Problem:
    return Problem(
        "model.source", str(error), "name a checkpoint: a folder with its config.json, or owner/name of the hub"
    )


def _size_problems(config: RunConfig, gpu: Gpu | None) -> list[Problem]:
    try:
        sizes = model_sizes(config.model.source)
    except ValueError as error:
        return [_no_checkpoint(error)]
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
            "the driver does not report how much there is, so it is not known whether the run fits",
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
    stop_at = config.trainer.stop_at
    if stop_at is not None and (component := component_of(stop_at.metric)) is not None:
        read["trainer.stop_at.metric"] = component
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


def model_problems(config: RunConfig, sizes: ModelSizes, *, on_gpu: bool) -> Iterator[Problem]:
    """Every rule that a config with a model of these sizes breaks."""
    model = config.model
    if model.freeze_vision_tower and not sizes.vision_parameters:
        yield Problem(
            "model.freeze_vision_tower",
            "the model has no vision tower",
            "set it to false, or take a vision-language model",
        )
    if model.lora is not None:
        yield from adapter_problems(model.lora, sizes)
    yield from _family_problems(config, family_of({"model_type": sizes.family}), on_gpu=on_gpu)
    yield from _kernel_problems(model, sizes, on_gpu=on_gpu)
    yield from division_problems(config, sizes)
    longest = longest_sequence(config)
    if longest > sizes.max_positions:
        lower = "data.max_prompt_length or rollout.max_response_length"
        yield Problem(
            "rollout.max_response_length",
            f"a prompt of {config.longest_prompt} and a response of {config.longest_response} tokens "
            f"{'in all turns ' if config.tools else ''}are {longest} together, more than the model's "
            f"{sizes.max_positions} positions",
            f"lower {lower}{', tools.max_turns or tools.max_result_length' if config.tools else ''} by "
            f"{longest - sizes.max_positions} in all",
        )


def adapter_problems(lora: LoraConfig, sizes: ModelSizes) -> Iterator[Problem]:
    """Targets that match no layer, or something other than a linear layer, or that vLLM has no adapters for."""
    problem = target_problem(lora, linear=sizes.linear_layers, others=sizes.other_modules)
    if problem is not None:
        yield problem
    elif lora.generator_weights == "separate":
        yield from _separate_problems(lora, sizes)


def target_problem(lora: LoraConfig, *, linear: Collection[str], others: Collection[str]) -> Problem | None:
    """What is wrong with the layers that the adapters of a model are for, by the names of its linear layers and of
    everything else; None if nothing is. peft would adapt experts, but as one stack of weights, which nothing here
    merges."""
    named = () if lora.target_modules == "all-linear" else others
    wrong = sorted(name for name in named if is_adapted(name, lora))
    if wrong:
        shown = ", ".join(wrong[:_SHOWN]) + (", ..." if len(wrong) > _SHOWN else "")
        what = f"matches {shown}: embeddings, the output head, norms, experts and blocks cannot be adapted"
    elif not any(is_adapted(name, lora) for name in linear):
        what = "matches no linear layer of the model"
    else:
        return None
    everything = LoraConfig(exclude_modules=lora.exclude_modules)
    known = sorted({name.rpartition(".")[2] for name in linear if is_adapted(name, everything)})
    fix = f"set it to all-linear, or name some of {', '.join(known)}" if known else "change exclude_modules"
    return Problem("model.lora.target_modules", f"{_targets(lora)} {what}", fix)


def _separate_problems(lora: LoraConfig, sizes: ModelSizes) -> Iterator[Problem]:
    where, fix = "model.lora.generator_weights", "set it to merged"
    if lora.rank > VLLM_RANKS[-1]:
        what = f"vLLM has adapters of rank {VLLM_RANKS[-1]} at most, and model.lora.rank is {lora.rank}"
        yield Problem(where, what, f"{fix}, or lower model.lora.rank")
    pattern = vision_modules()
    seeing = [name for name in sizes.linear_layers if re.fullmatch(pattern, name) and is_adapted(name, lora)]
    if seeing:
        what = f"vLLM has no adapters in a vision tower, and {_targets(lora)} matches {', '.join(seeing[:_SHOWN])}"
        yield Problem(where, what, f"{fix}, or model.lora.exclude_modules to vision-tower")
    engine = family_of({"model_type": sizes.family}).engine
    if not engine.adapters:
        yield Problem(where, f"vLLM has no adapters for a {sizes.family} model", fix)
    unadapted = engine.unadapted
    others = [n for n in sizes.linear_layers if n.rpartition(".")[2] in unadapted and is_adapted(n, lora)]
    if others:
        what = f"vLLM has no adapters of these layers, and {_targets(lora)} matches {', '.join(others[:_SHOWN])}"
        yield Problem(where, what, f"{fix}, or model.lora.exclude_modules to {list(unadapted)}")


def _targets(lora: LoraConfig) -> str:
    excluded = "" if lora.exclude_modules is None else f" without exclude_modules {_shown(lora.exclude_modules)}"
    return f"{_shown(lora.target_modules)}{excluded}"


def _shown(modules: str | tuple[str, ...]) -> str:
    return repr(shortened(modules)) if isinstance(modules, str) else shortened(str(modules))


def _family_problems(config: RunConfig, family: Family, *, on_gpu: bool) -> Iterator[Problem]:
    """What a model of this family cannot have, in vLLM or over several ranks."""
    known = family.engine.cpu_dtypes
    if not on_gpu and config.model.dtype not in known:
        yield Problem("model.dtype", family.engine.why_cpu_dtypes, f"set it to {' or '.join(known)}, or take a GPU")
    if family.carries_state and config.cluster.sequence_parallel_size > 1:
        yield Problem("cluster.sequence_parallel_size", NO_SHARED_STATE, "set it to 1")
    if family.vision is not None and family.vision.sees_both_ways:
        yield from _both_ways_problems(config, on_gpu=on_gpu)


def _both_ways_problems(config: RunConfig, *, on_gpu: bool) -> Iterator[Problem]:
    """Attention that lacks what a model asks for whose images have tokens that see each other."""
    if config.cluster.sequence_parallel_size > 1:
        what = "the model lets the tokens of an image see each other, and ranks with a slice of them each have not all"
        yield Problem("cluster.sequence_parallel_size", what, "set it to 1")
    backend = attention_choice(config.model, has_gpu=on_gpu).backend
    if backend != "sdpa":
        what = f"it is {backend}, whose kernels let the tokens of an image see only those before them"
        yield Problem("model.attention", what, "set it to sdpa")
    if not on_gpu and not is_on(CPU_ENGINE):
        what = "vLLM's own attention for a CPU lets the tokens of an image see only those before them"
        yield Problem(f"{CPU_ENGINE}=0 in the environment", what, "leave it out, or take a GPU")


def _kernel_problems(model: ModelConfig, sizes: ModelSizes, *, on_gpu: bool) -> Iterator[Problem]:
    """A head size or a number format for which vLLM or the trainer has no kernel on this machine."""
    if on_gpu and model.dtype == "float32" and model.generator_lora is not None:
        yield Problem(
            "model.lora.generator_weights",
            "on a GPU vLLM has kernels for adapters in 16 bits only, and model.dtype is float32",
            "set it to merged, or model.dtype to bfloat16",
        )
    if not on_gpu and sizes.experts_per_token and model.generator_lora is not None:
        yield Problem(
            "model.lora.generator_weights",
            "where there are adapters, vLLM computes experts by Triton, which has no kernels for a CPU",
            "set it to merged",
        )
    backend = attention_choice(model, has_gpu=on_gpu).backend
    if backend != "sdpa" and sizes.head_size > _LARGEST_HEAD:
        what = f"it is {backend}, whose kernels take heads of a width up to {_LARGEST_HEAD}, and {sizes.head_size} is"
        yield Problem("model.attention", f"{what} that of the model's largest", "set it to sdpa")
    without = [size for size, _ in sizes.kinds_of_heads if size not in _CPU_HEAD_SIZES]
    if on_gpu or not without:
        return
    known = ", ".join(map(str, _CPU_HEAD_SIZES))
    what = f"attention heads of width {without[0]}, and vLLM has kernels for a CPU for {known} only"
    if isinstance(model.source, TinyModel):
        fix = "change it, or model.source.num_heads, so that hidden_size / num_heads is one of them"
        yield Problem("model.source.hidden_size", f"it makes {what}", fix)
    else:
        yield Problem("model.source.path", f"it has {what}", "take another model, or a GPU")


def division_problems(config: RunConfig, sizes: ModelSizes) -> Iterator[Problem]:
    """Heads and layers that the workers of a sequence, or of a generator, cannot share equally."""
    cluster = config.cluster
    for key, ranks, why_not in (
        ("cluster.sequence_parallel_size", cluster.sequence_parallel_size, sizes.why_heads_not_shared),
        ("cluster.tensor_parallel_size", cluster.tensor_parallel_size, sizes.why_layers_not_shared),
    ):
        if (why := why_not(ranks)) is not None:
            fitting = [f"{size}" for size in range(1, sizes.heads + 1) if why_not(size) is None]
            yield Problem(key, why, f"set it to one of {', '.join(fitting)}")
