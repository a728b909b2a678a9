"""Whole run configurations as hypothesis draws them: mostly such as fit together, some with a mistake in them."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, get_args

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from rl_core.config.algorithm import AlgorithmConfig, KLPenalty
from rl_core.config.loading import merge_trees
from rl_core.config.training import OptimConfig
from rl_core.section import Choices
from sightline_tools.easyr1.conversions import has_option
from tests.drawn.bounds import Bound, every_bound
from tests.drawn.mistakes import MISTAKES
from tests.drawn.profiles import VISION, Tree
from tests.drawn.rows import EASYR1_BATCH, EASYR1_SEQUENTIAL, OURS
from tests.rl_core.built_in import ESTIMATORS, LOSSES

_NOT_HERE = "published."
"""A section that is written whole, and that no computation reads."""

_COSTLY = (
    "reward.workers",
    "seed",
    "cold_start.",
    "cluster.",
    "rollout.max_",
    "rollout.cpu_",
    "data.max_",
    "data.video_",
)
"""Keys whose bound asks for other engines, other rows, or hundreds of processes."""

_TOO_SHARP = ("rollout.temperature",)
"""Keys whose bound makes more of the last digits than the engine and the trainer have in common."""

_BATCHES = (1, 2, 3, 4, 6)


def one_of(*values: Any) -> SearchStrategy[Any]:
    """One of the values; a value that is named twice comes twice as often."""
    return st.sampled_from(values)


def choices(annotation: Any) -> SearchStrategy[Any]:
    """Every value of a Literal."""
    return st.sampled_from(get_args(annotation))


def field_choices(section: Any, name: str) -> SearchStrategy[Any]:
    """Every value of a section's Literal field."""
    return choices(section.model_fields[name].annotation)


def sometimes(values: SearchStrategy[Any], *, out_of: int = 3) -> SearchStrategy[Any]:
    """The values, and null in all other cases."""
    return st.integers(1, out_of).flatmap(lambda number: values if number == 1 else st.none())


def run_trees(profiles: Sequence[Tree]) -> SearchStrategy[Tree]:
    """The tree of a whole RunConfig on one of the profiles, which may have a mistake in it."""
    return fitting_trees(profiles).flatmap(perhaps_spoiled)


@st.composite
def fitting_trees(draw: DrawFn, profiles: Sequence[Tree]) -> Tree:
    """The tree of a whole RunConfig on one of the profiles, whose parts mostly fit together."""
    base = draw(st.sampled_from(profiles))
    algorithm = draw(algorithms())
    batch = draw(one_of(*_BATCHES))
    tree = {
        "data": draw(drawing(base, batch)),
        "model": draw(models(base)),
        "reward": draw(rewards(base)),
        "rollout": draw(rollouts(algorithm, base)),
        "algorithm": algorithm,
        "actor": draw(owners(batch, OPTIMIZER_KEYS)),
        "critic": draw(owners(batch, CRITIC_KEYS)) if algorithm["advantage"]["type"] == "gae" else None,
        "trainer": draw(trainers(has_critic=algorithm["advantage"]["type"] == "gae")),
        "evaluation": draw(evaluations()),
        "merge": {"probe_tolerance": 0.1 if base["model"]["dtype"] == "bfloat16" else 1e-4},
    }
    whole = merge_trees(deepcopy(base), tree)
    _fit_optimizers(whole)
    return whole


@st.composite
def perhaps_spoiled(draw: DrawFn, tree: Tree) -> Tree:
    """The tree, in three of eight cases with a value that is a mistake, or stands at or beyond a bound."""
    match draw(st.integers(0, 7)):
        case 0 | 1:
            key, value = draw(st.sampled_from(MISTAKES))
            return with_key(tree, key, value)
        case 2:
            bound = draw(st.sampled_from(BOUNDS))
            return with_key(tree, bound.key, bound.value)
        case _:
            return tree


def with_key(tree: Tree, key: str, value: Any) -> Tree:
    """The tree with another value; sections on the way that are not there are made."""
    changed = deepcopy(tree)
    *parents, last = key.split(".")
    node = changed
    for part in parents:
        if not isinstance(node.get(part), dict):
            node[part] = {}
        node = node[part]
    node[last] = deepcopy(value)
    return changed


def _is_drawn(bound: Bound) -> bool:
    return not bound.key.startswith(_NOT_HERE) and not (bound.allowed and bound.key.startswith(_COSTLY + _TOO_SHARP))


BOUNDS = [bound for bound in every_bound() if _is_drawn(bound)]


@st.composite
def algorithms(draw: DrawFn) -> Tree:
    """The section `algorithm`."""
    old = draw(field_choices(AlgorithmConfig, "old_log_probs"))
    clip = draw(one_of((0.2, 0.28), (0.2, 0.3), (0.0, 0.2), (3e-4, 4e-4), (1.0, 4.0)))
    return {
        "advantage": draw(
            chosen(ESTIMATORS, {"gamma": one_of(1.0, 1.0, 0.9, 0.0), "lam": one_of(1.0, 1.0, 0.95, 0.0)})
        ),
        "loss": draw(
            chosen(
                LOSSES,
                {
                    "clip_ratio_low": st.just(clip[0]),
                    "clip_ratio_high": st.just(clip[1]),
                    "clip_ratio_dual": one_of(3.0, 1.01, 10.0),
                    "tau_positive": one_of(1.0, 0.1),
                    "tau_negative": one_of(1.05, 5.0),
                },
            )
        ),
        "loss_avg_mode": draw(field_choices(AlgorithmConfig, "loss_avg_mode")),
        "entropy_coef": draw(one_of(0.0, 0.01)),
        "online_filtering": draw(sometimes(filters(old), out_of=6)),
        "kl": draw(sometimes(kls(), out_of=2)),
        "old_log_probs": old,
        "correction": draw(sometimes(corrections(), out_of=2)) if old == "recompute" else None,
    }


def chosen(sections: Choices, options: Mapping[str, SearchStrategy[Any]]) -> SearchStrategy[Tree]:
    """One of the built-in sections, with those of the `options` that it has."""

    def drawn(kind: str) -> SearchStrategy[Tree]:
        own = {name: values for name, values in options.items() if has_option(sections, kind, name)}
        return st.fixed_dictionaries({"type": st.just(kind), **own})

    return st.sampled_from(sorted(sections)).flatmap(drawn)


def filters(old_log_probs: str) -> SearchStrategy[Tree]:
    """The section `online_filtering`; bounds that some groups of a random model pass, and bounds that none does."""
    surplus = ("discard", "keep", "keep") if old_log_probs == "engine" else ("discard",)
    wide = {"filter_low": -10.0, "filter_high": 10.0}
    spread = {"statistic": "spread", "filter_low": 0.0, "filter_high": None}
    published = {"filter_key": "accuracy", "max_try_make_batch": 2}
    return st.builds(
        lambda bounds, key, rest, size: {
            "filter_key": key,
            "surplus": rest,
            "max_try_make_batch": 3,
            "mini_rollout_batch_size": size,
            **bounds,
        },
        one_of(wide, wide, spread, published),
        one_of("overall", "overall", "accuracy"),
        one_of(*surplus),
        one_of(None, None, 1, 3, 5),
    )


def kls() -> SearchStrategy[Tree]:
    """The section `kl`."""
    adaptive = st.fixed_dictionaries({"target": one_of(0.1, 1e-4), "horizon": one_of(10_000.0, 24.0)})
    return st.fixed_dictionaries(
        {
            "coef": one_of(0.01, 1.0),
            "penalty": choices(KLPenalty),
            "use_kl_loss": st.booleans(),
            "adaptive": sometimes(adaptive),
        }
    )


def corrections() -> SearchStrategy[Tree]:
    """The section `correction`, of every kind and level."""
    level = one_of("token", "sequence")
    truncated = {"type": st.just("tis"), "level": level, "clip_max": one_of(2.0, 1.0)}
    masked = {"type": st.just("mis"), "level": level, "clip_min": one_of(0.5, 0.0, 1.0), "clip_max": one_of(5.0, 1.0)}
    return st.one_of(st.fixed_dictionaries(truncated), st.fixed_dictionaries(masked))


def optimizers() -> SearchStrategy[Tree]:
    """A section `optim`."""
    return st.fixed_dictionaries(
        {
            "lr": one_of(1e-6, 1e-3, 1e-2),
            "betas": one_of([0.9, 0.999], [0.0, 0.0], [0.9, 0.99]),
            "weight_decay": one_of(0.0, 0.01),
            "warmup": one_of((0, 0.0), (0, 0.0), (1, 0.0), (100, 0.0), (0, 0.1), (0, 0.9)),
            "lr_scheduler_type": field_choices(OptimConfig, "lr_scheduler_type"),
            "min_lr_ratio": one_of(0.0, 0.1, 1.0),
            "strategy": field_choices(OptimConfig, "strategy"),
        }
    ).map(_with_warmup)


def _with_warmup(optim: Tree) -> Tree:
    """One of the two keys that say how long it is."""
    steps, ratio = optim.pop("warmup")
    return {**optim, "lr_warmup_steps": steps, "lr_warmup_ratio": ratio}


OPTIMIZER_KEYS: Tree = {"max_grad_norm": one_of(1.0, 1e-3, 100.0)}
CRITIC_KEYS: Tree = {
    "cliprange_value": one_of(0.5, 0.01),
    "loss_avg_mode": field_choices(AlgorithmConfig, "loss_avg_mode"),
}


def owners(batch: int, more: Tree) -> SearchStrategy[Tree]:
    """A section `actor` or `critic`, whose batches mostly divide the step's."""
    divisors = [size for size in range(1, batch + 1) if batch % size == 0]
    return st.fixed_dictionaries(
        {
            "global_batch_size": one_of(*divisors * 12, batch + 1),
            "ppo_epochs": one_of(1, 1, 2),
            "micro_batch_size_per_device_for_update": one_of("auto", 1, 2, 8),
            "micro_batch_size_per_device_for_experience": one_of("auto", 1, 16),
            "optim": optimizers(),
            **more,
        }
    )


def _fit_optimizers(tree: Tree) -> None:
    """`adamw_bf16` stays where it fits: its mistakes are drawn elsewhere."""
    for owner in (tree["actor"], tree["critic"]):
        if owner is not None and tree["model"]["dtype"] == "float32":
            owner["optim"]["strategy"] = "adamw"


@st.composite
def drawing(draw: DrawFn, base: Tree, batch: int) -> Tree:
    """What of `data` chooses among the prepared rows."""
    weights = one_of({"scenes": 1.0, "sums": 1.0}, {"scenes": 3.0, "sums": 0.5})
    is_mixture = base["data"]["train"]["type"] == "mixture"
    return {
        "rollout_batch_size": batch,
        "shuffle": draw(st.booleans()),
        "source_weights": draw(sometimes(weights, out_of=2)) if is_mixture else None,
    }


@st.composite
def models(draw: DrawFn, base: Tree) -> Tree:
    """What of `model` is not the profile's."""
    lora = draw(sometimes(adapters(), out_of=4))
    can_freeze = base["model"]["source"]["family"] in VISION and lora is None
    return {
        "attention": draw(one_of("auto", "sdpa")),
        "gradient_checkpointing": draw(one_of("auto", False, True)),
        "log_prob_chunk_tokens": draw(one_of(2048, 1, 5)),
        "freeze_vision_tower": draw(st.booleans()) if can_freeze else False,
        "lora": lora,
    }


@st.composite
def adapters(draw: DrawFn) -> Tree:
    """The section `lora`. The generator has no adapters of its own in a vision tower."""
    excluded = draw(one_of(".*visual.*", None, ["o_proj"]))
    return {
        "rank": draw(one_of(1, 4, 64)),
        "alpha": draw(one_of(1.0, 16.0)),
        "target_modules": draw(one_of("all-linear", ["q_proj", "v_proj"], r".*mlp\.\w+_proj")),
        "exclude_modules": excluded,
        "generator_weights": draw(one_of("merged", "separate")) if excluded == ".*visual.*" else "merged",
    }


@st.composite
def rollouts(draw: DrawFn, algorithm: Tree, base: Tree) -> Tree:
    """What of `rollout` is not the profile's. A random model has nothing sharp: both number formats agree closely."""
    fewest = ESTIMATORS[algorithm["advantage"]["type"]]().smallest_group
    gap, mean_gap = (0.5, 0.1) if base["model"]["dtype"] == "bfloat16" else (2e-5, 1e-5)
    return {
        "n": draw(one_of(*(n for n in (1, 2, 3, 4) if n >= fewest))),
        "staleness": draw(one_of(0, 0, 1)) if can_wait(algorithm) else 0,
        "temperature": draw(one_of(1.0, 1.0, 0.7, 1.5)),
        "max_log_prob_gap": draw(one_of(gap, 5.0, None)),
        "max_mean_log_prob_gap": draw(one_of(mean_gap, 0.1, None)),
        "min_log_prob_correlation": draw(one_of(0.99, None)),
    }


def can_wait(algorithm: Tree) -> bool:
    """Whether a batch may be learned from a step after it was sampled."""
    knows_its_weights = algorithm["old_log_probs"] == "engine" or algorithm["correction"] is not None
    return knows_its_weights and algorithm["advantage"]["type"] not in ("gae", "remax")


def rewards(base: Tree) -> SearchStrategy[Tree]:
    """The section `reward`: one function, a mixture, one a data source."""
    length = {"function": "length", "weight": 0.1, "kwargs": {"target_length": 1, "max_length": 8}}
    file = {"function": OURS, "name": "parity", "weight": -0.5}
    single: list[Tree] = [
        {"function": "count"},
        {"function": "math"},
        {"function": "r1v", "grader": "math_verify"},
        {"function": EASYR1_BATCH},
        {"function": EASYR1_SEQUENTIAL, "kwargs": {"step": 3}},
        {"function": OURS, "async_calls": 2},
        {"mixture": [{"function": "count"}, length, {"function": "repetition"}]},
        {"mixture": [file, {"function": "format"}]},
    ]
    by_source = {"function": "count", "by_source": {"sums": {"function": OURS}, "elsewhere": {"function": "math"}}}
    is_mixture = base["data"]["train"]["type"] == "mixture"
    return st.sampled_from([*single, by_source] if is_mixture else single)


@st.composite
def trainers(draw: DrawFn, *, has_critic: bool) -> Tree:
    """The section `trainer`; the run is stopped after its first step, however long it would be."""
    return {
        "total_epochs": draw(one_of(1, 3)),
        "max_steps": draw(one_of(None, 4, 30)),
        "val_freq": draw(one_of(-1, -1, 1, 2)),
        "val_before_train": draw(st.booleans()),
        "save_freq": draw(one_of(1, 5)),
        "save_on_epoch_end": draw(one_of(True, True, False)),
        "save_limit": draw(one_of(1, 3)),
        "save_model_only": draw(one_of(False, False, False, True)),
        "async_save": draw(one_of(True, True, False)),
        "offload": draw(one_of("auto", "none", "optimizer", "all")),
        "critic_warmup": draw(one_of(0, 0, 2)) if has_critic else 0,
        "max_nonfinite_steps": draw(one_of(1, 3)),
    }


def evaluations() -> SearchStrategy[Tree]:
    """The section `evaluation`."""
    return st.fixed_dictionaries(
        {
            "n": one_of(1, 2),
            "temperature": one_of(0.6, 0.0),
            "top_p": one_of(0.95, 1.0),
            "modes": one_of(["greedy", "sampled"], ["sampled"]),
            "accuracy_key": one_of("accuracy", "accuracy", "accuracy", "overall"),
            "limit": one_of(None, 1),
        }
    )
