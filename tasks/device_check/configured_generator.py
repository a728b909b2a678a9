"""Checks of the generator of the configured model: its start, its cache, its rounds of sleep, its tokens, its speed."""

import time
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from rl_core.config.tolerances import AGREEMENT
from rl_core.planning.batches import WorkerShare
from rl_core.planning.engine_memory import cpu_cache_bytes, engine_part, gpu_cache_bytes, kv_bytes_per_token
from rl_core.planning.step_time import CardTime
from rl_core.planning.training_state import BYTES
from rl_core.types import Group
from rl_core.workers.local_worker import LocalWorker
from rl_core.workers.protocol import WorkerGroup, awake_generator
from tasks.device_check.check import Finding, Setting, compared, not_checked, peak_against_plan
from tasks.device_check.checks import AGREES, BANNED, CACHE, PEAK, ROUNDS, SPEED, START
from tasks.device_check.geometry import Geometry, made_lengths, prepare_geometry
from tasks.device_check.speed import seconds_against_plan, speed_finding
from tasks.device_check.trial import agreement, agrees, gap_of, some_sampled

_ROUNDS: Final = 3
_SMALL: Final = {"n": 2, "max_tokens": 16}
_SMALL_PROMPTS: Final = 2
_RESPONSE: Final = 128
"""Most tokens of a response where the speed is measured."""

_NOT_PLANNED: Final = "the driver does not report the memory of this GPU (MIG?), so the plan has no cache"


def generator_findings(setting: Setting) -> Iterator[Finding]:
    """Every check of the generator, with one start of it."""
    trial = prepare_geometry(setting)
    with trial.workers() as workers:
        workers.usage()  # forgets the peaks of loading
        start = time.perf_counter()
        with awake_generator(workers):
            seconds = time.perf_counter() - start
            yield Finding(check=START, verdict="measured", measured=f"{seconds:.0f} s", figures={"seconds": seconds})
            yield _cache(workers, trial)
        yield _rounds(workers, trial)
        workers.usage()
        with awake_generator(workers):
            start = time.perf_counter()
            longest = min(_RESPONSE, trial.config.rollout.max_response_length)
            groups = some_sampled(workers, trial, trial.prompts, n=trial.config.rollout.n, max_tokens=longest)
            seconds = time.perf_counter() - start
        peaks = workers.usage().together
        yield _banned(groups, trial)
        yield agreement(AGREES, workers, groups, trial)
        yield _speed(groups, seconds, trial)
        if trial.memory_is_known:
            yield peak_against_plan(PEAK, "generate", peaks=peaks, forecast=trial.forecast)
        else:
            yield not_checked(PEAK, _NOT_PLANNED)


def _cache(workers: WorkerGroup, trial: Geometry) -> Finding:
    """How much the cache holds, compared with the plan. More than planned is good."""
    if not isinstance(workers, LocalWorker):
        return not_checked(CACHE, "several workers have caches of their own: see 'GPU KV cache size' in their logs")
    if not trial.memory_is_known:
        return not_checked(CACHE, _NOT_PLANNED)
    config, part = trial.config, engine_part(trial.config.cluster, trial.sizes)
    weights = part.parameters * BYTES[config.model.dtype]
    planned = (
        cpu_cache_bytes(config, part)
        if trial.gpu is None
        else gpu_cache_bytes(config, part, gpu_gib=trial.gpu.memory_gib or 0.0, weights=weights)
    )
    tokens = workers.generator.engine.cached_tokens
    token_bytes = kv_bytes_per_token(config, part)
    return compared(
        CACHE,
        holds=tokens * token_bytes >= 0.9 * planned,
        measured=f"{tokens} tokens, {tokens * token_bytes / 2**30:.2f} GiB against {planned / 2**30:.2f} in the plan",
        advice="fewer sequences are decoded at a time than planned: raise rollout.gpu_memory_utilization, or lower "
        "data.max_pixels",
        figures={"tokens": tokens, "bytes": tokens * token_bytes, "planned_bytes": planned},
    )


def _rounds(workers: WorkerGroup, trial: Geometry) -> Finding:
    """Whether small batches agree after each round: what sleep drops and does not restore shows in them first."""
    bounds, means, count = AGREEMENT[trial.config.model.dtype], [], 0
    all_agree = True
    for _ in range(_ROUNDS):
        with awake_generator(workers):
            groups = some_sampled(workers, trial, trial.prompts[:_SMALL_PROMPTS], **_SMALL)
        gap = gap_of(workers, groups)
        means.append(gap.mean)
        all_agree, count = all_agree and agrees(gap, bounds), gap.count
    return compared(
        ROUNDS,
        holds=all_agree,
        measured=f"{count} log-probs a round differ by {', '.join(f'{mean:.1e}' for mean in means)} in the mean "
        f"(bound {bounds.mean:.0e})",
        advice="what the generator drops in its sleep is not what it has after it: send device.json, and do not train",
        figures={f"mean_{number}": mean for number, mean in enumerate(means, start=1)},
    )


def _banned(groups: Sequence[Group], trial: Geometry) -> Finding:
    ids = np.concatenate([rollout.response_ids for group in groups for rollout in group.rollouts])
    hits = sorted(set(ids.tolist()) & trial.banned)
    by_chance = len(ids) * len(trial.banned) / trial.sizes.vocab_size
    return compared(
        BANNED,
        holds=not hits,
        measured=f"{len(hits)} of {len(trial.banned)} banned tokens are among {len(ids)} sampled ones; without the ban "
        f"about {by_chance:.0f} would be",
        advice=f"tokens {hits[:5]} were sampled, which break the trainer's passes: send device.json, and do not train",
        figures={"sampled": len(ids), "banned": len(trial.banned), "expected": by_chance},
    )


def _speed(groups: Sequence[Group], seconds: float, trial: Geometry) -> Finding:
    """Tokens a second, compared with what the plan assumes of the card."""
    lengths = [len(rollout.response_ids) for group in groups for rollout in group.rollouts]
    rate = sum(lengths) / seconds
    shown = f"{rate:,.0f} tokens/s in {len(lengths)} responses of {np.mean(lengths):.0f} tokens"
    card = trial.card
    if card is None:
        return Finding(check=SPEED, verdict="measured", measured=shown, figures={"tokens_per_second": rate})
    cluster, config = trial.config.cluster, trial.config
    assumed = CardTime(config=config, sizes=trial.sizes, card=card, lengths=made_lengths(groups))
    planned = assumed.generate(-(-len(groups) // WorkerShare.of(config).engines), config.rollout.max_num_seqs)
    least = max(lengths) * engine_part(cluster, trial.sizes).parameters * BYTES[config.model.dtype] / card.bandwidth
    compared_words, advice = seconds_against_plan(seconds, planned)
    return speed_finding(
        SPEED,
        f"{shown}; {compared_words}",
        rate=1.0 / seconds,
        most=1.0 / least,  # the weights are read for each token of the longest response
        figures={"tokens_per_second": rate, "seconds": seconds, "planned_seconds": planned},
        advice=advice,
    )
