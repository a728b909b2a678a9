"""Checks of the generator: it takes every weight, and samples from the trainer's distribution whatever the weights."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import torch

from rl_core.config.tolerances import AGREEMENT
from rl_core.files import read_json
from rl_core.models.loading import banned_token_ids
from rl_core.types import Group
from rl_core.workers.local_worker import LocalWorker
from rl_core.workers.protocol import WorkerGroup, awake_generator
from tasks.device_check.check import Finding, Setting, compared
from tasks.device_check.model_rows import generator_dtype
from tasks.device_check.trial import Dtype, Trial, gap_of, made_groups, prepare_trial, some_sampled
from tasks.model_check.checks import AGREES, ARRIVES, BANNED, CACHED, CHOOSES, EPSILONS, UNCHANGED
from tasks.model_check.experts import without_choice

_RESPONSES: Final = 4
_TOKENS: Final = 12
_MOVED: Final = 0.2
"""How far every weight moves between two comparisons, in its standard deviations."""

_LARGEST: Final[dict[Dtype, float]] = {"float32": 2e-5, "bfloat16": 5.0}
_MEAN: Final[dict[Dtype, float]] = {"float32": 5e-6, "bfloat16": 0.05}
"""Bounds on differences of log-probs, nats. In bfloat16 five layers of the widths of Qwen3.5-35B-A3B differ by 0.033 in
the mean where each token goes through all 16 experts that are left, and by 0.021 without experts."""

_ONLY_WITH_IMAGES: Final = (
    "prompts without images agree, and those with images do not: vLLM takes images otherwise, as where its attention "
    "is one way and the model lets the tokens of an image see each other"
)

_UNDECIDED: Final = (
    "random weights leave routers undecided; if a run with the published ones stops, raise "
    "rollout.max_mean_log_prob_gap and set algorithm.old_log_probs: recompute with a correction"
)

_FLATTENED: Final = 0.01
"""What the output head is multiplied by, so that every token is about as likely as any other."""


def generator_findings(setting: Setting) -> Iterator[Finding]:
    """Whether generator and trainer are one model. In bfloat16 a model with experts is one whose tokens go through all
    of them, and how much more the two differ where they choose is reported separately."""
    assert setting.model is not None, "a check of a given model"
    rounds = generator_dtype(read_json(setting.model / "config.json")) != "float32"
    compared_one = without_choice(setting) if rounds else setting
    for finding in _findings(compared_one):
        yield finding
        if finding.check == BANNED and compared_one is not setting:  # the last one, so all weights have arrived
            yield _choice(setting)


def _choice(setting: Setting) -> Finding:
    """How far generator and trainer differ where each chooses experts by itself."""
    trial = replace(prepare_trial(setting, "float32", name="with-choice"), in_process=True)
    dtype = trial.config.model.dtype
    with trial.workers() as workers:
        gap = gap_of(workers, _sampled(workers, trial))
    holds = gap.mean <= _MEAN[dtype]
    return Finding(
        check=CHOOSES,
        verdict="ok" if holds else "measured",
        measured=f"{gap.count} log-probs differ by at most {gap.largest:.1e}, in the mean by {gap.mean:.1e}; a run "
        f"stops above {AGREEMENT[dtype].mean:.0e}",
        advice="" if holds else _UNDECIDED,
        figures={"largest": gap.largest, "mean": gap.mean},
    )


def _findings(setting: Setting) -> Iterator[Finding]:
    """With one start of the generator."""
    trial = replace(prepare_trial(setting, "float32"), in_process=True)
    dtype = trial.config.model.dtype
    made = made_groups(trial, 5, 1)
    with trial.workers() as workers:
        assert isinstance(workers, LocalWorker), "a single worker in this process"
        before = _log_probs(workers, made)
        problem = _problem_of_load(workers)
        yield compared(
            ARRIVES,
            holds=not problem,
            measured=problem or "all did, in the first load",
            advice="the model's config.json does not say what its weights are, or vLLM's class of it lacks a part",
        )
        if problem:
            return
        yield epsilons_finding(workers.trainer.policy.model, workers.generator.engine.layers)
        workers.sleep()
        after = _log_probs(workers, made)
        yield compared(
            UNCHANGED,
            holds=np.array_equal(before, after),
            measured=f"largest difference {np.abs(before - after).max():.1e}",
            advice="vLLM changes classes of transformers in this process: give generators devices of their own",
        )
        yield _agreement(workers, trial, dtype)
        yield _repeated(workers, trial)
        yield _banned(workers, trial)


def _problem_of_load(workers: LocalWorker) -> str:
    try:
        workers.wake()
    except ValueError as error:
        return str(error)
    return ""


def epsilons_finding(model: torch.nn.Module, layers: Mapping[str, torch.nn.Module]) -> Finding:
    """Whether norms add the same to a variance. What they add shows in log-probs only where activations are small, as
    those of random weights are not. `layers`: [name of a weight of the model] -> the generator's layer of it."""
    both = {
        name: (epsilon, _epsilon(layers[weight]))
        for name, layer in model.named_modules()
        if (epsilon := _epsilon(layer)) is not None and (weight := f"{name}.weight") in layers
    }
    other = {name: theirs for name, (ours, theirs) in both.items() if theirs not in (None, ours)}
    return compared(
        EPSILONS,
        holds=not other,
        measured="; ".join(f"{name} has {both[name][0]:g}, and {theirs:g} in vLLM" for name, theirs in other.items())
        or f"all of {len(both)}",
        advice="vLLM does not read this epsilon from the config.json: the log-probs drift apart as the model learns",
    )


def _epsilon(layer: torch.nn.Module) -> float | None:
    found = (getattr(layer, name, None) for name in ("variance_epsilon", "eps"))
    return next((value for value in found if isinstance(value, float)), None)


def _log_probs(workers: WorkerGroup, groups: Sequence[Group]) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    (found,) = workers.compute("old_log_probs", [groups])
    return np.concatenate([log_probs for group in found for log_probs in group])


def _sampled(workers: WorkerGroup, trial: Trial) -> list[Group]:
    with awake_generator(workers):
        return some_sampled(workers, trial, trial.prompts, n=_RESPONSES, max_tokens=_TOKENS)


def _agreement(workers: LocalWorker, trial: Trial, dtype: Dtype) -> Finding:
    """With the initial weights, and after each of two moves of every weight."""
    gaps = []
    for number in range(3):
        if number:
            _move_weights(workers, seed=number)
        groups = _sampled(workers, trial)
        gaps.append(gap_of(workers, groups))
    largest, mean = max(gap.largest for gap in gaps), max(gap.mean for gap in gaps)
    holds = largest <= _LARGEST[dtype] and mean <= _MEAN[dtype]
    texts = [group for group in groups if not group.prompt.image_uids]
    differs_by_images = not holds and gap_of(workers, texts).largest <= _LARGEST[dtype] < gaps[-1].largest
    return compared(
        AGREES,
        holds=holds,
        measured=f"{gaps[0].count} log-probs each differ by at most "
        + ", ".join(f"{gap.largest:.1e}" for gap in gaps)
        + f" (bound {_LARGEST[dtype]:.0e}), in the mean by "
        + ", ".join(f"{gap.mean:.1e}" for gap in gaps),
        advice=_ONLY_WITH_IMAGES
        if differs_by_images
        else "vLLM's class of the model computes something else than transformers does, or keeps a weight of before",
        figures={"largest": largest, "mean": mean},
    )


@torch.no_grad()
def _move_weights(workers: LocalWorker, *, seed: int) -> None:
    """Move every weight of the trainer by a share of its spread, vectors by a fixed length."""
    generator = torch.Generator().manual_seed(seed)
    for weight in workers.trainer.policy.model.parameters():
        noise = torch.randn(weight.shape, generator=generator).to(weight)
        weight.add_(noise, alpha=_MOVED * (float(weight.std()) if weight.ndim > 1 else 1.0 / 2))
    workers.trainer.weight_changes += 1


def _repeated(workers: WorkerGroup, trial: Trial) -> Finding:
    first, again = ([rollout for group in _sampled(workers, trial) for rollout in group.rollouts] for _ in range(2))
    differing = [
        one.prompt_uid
        for one, other in zip(first, again, strict=True)
        if not (np.array_equal(one.response_ids, other.response_ids) and np.array_equal(one.log_probs, other.log_probs))
    ]
    return compared(
        CACHED,
        holds=not differing or torch.cuda.is_available(),  # a GPU adds in any order
        measured=f"{len(first) - len(differing)} of {len(first)} responses are equal to the bit",
        advice="vLLM's cache does not hold what the model computes: set rollout.enable_prefix_caching: false",
    )


def _banned(workers: LocalWorker, trial: Trial) -> Finding:
    head = workers.trainer.policy.model.get_output_embeddings().weight
    with torch.no_grad():
        head.mul_(_FLATTENED)
    workers.trainer.weight_changes += 1
    groups = _sampled(workers, trial)
    tokens = np.concatenate([rollout.response_ids for group in groups for rollout in group.rollouts])
    banned = banned_token_ids(trial.run.initial_model)
    hits = sorted({*tokens.tolist()} & {*banned})
    return compared(
        BANNED,
        holds=not hits,
        measured=f"{len(hits)} of {len(banned)} banned tokens are among {len(tokens)}; without the ban about "
        f"{len(tokens) * len(banned) / len(head):.0f} would be",
        advice=f"tokens {hits[:5]} were sampled, which break the trainer's passes",
    )
