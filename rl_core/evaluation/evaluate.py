"""Generating responses to held-out prompts, and scoring them."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import MappingProxyType

from rl_core.config.stages import EvaluationConfig
from rl_core.evaluation.items import EvaluationItem, Mode, graded_item
from rl_core.isolation.failed_share import check_failed_share
from rl_core.progress import TALLY, Advance, Now, Progress, showing
from rl_core.randomness import keyed_seed
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.sample import RewardSample, turns_of
from rl_core.stop import StopRequest
from rl_core.types import (
    Generate,
    GenerateTurns,
    GenerationRequest,
    Prompt,
    Requests,
    Rollout,
    RolloutStream,
    Sampling,
    Score,
)

_LOG = logging.getLogger(__name__)


def evaluate_prompts(
    prompts: Sequence[Prompt],
    *,
    generate: Generate,
    pool: RewardPool,
    config: EvaluationConfig,
    max_response_length: int,
    run_seed: int,
    progress: Progress,
    step: int = 0,
    known: Mapping[Mode, Sequence[EvaluationItem]] = MappingProxyType({}),
    max_failed_share: float = 1.0,
) -> dict[Mode, list[EvaluationItem]]:
    """[mode] -> items of every configured mode, in the order of the first `config.limit` prompts: one response at
    temperature 0, or `config.n` sampled ones. Seeds are keyed by mode, prompt and sample. A response without a score
    is neither right nor wrong. `step` is the training step after which the model is asked, for the rewards. In a mode
    whose items are `known` it is not asked.

    Raises:
        ValueError: a score lacks `config.accuracy_key`.
        TooManyFailures: of the responses of a mode, the reward failed for more than `max_failed_share`.
    """
    chosen = prompts[: config.limit]
    items: dict[Mode, list[EvaluationItem]] = {}
    for mode in config.modes:
        if mode in known:
            items[mode] = [*known[mode]]
            _LOG.info("the %s answers of this model are known, and it is not asked again", mode)
            continue
        requests = _requests(chosen, mode, n=config.n if mode == "sampled" else 1, run_seed=run_seed)
        sampling = _sampling(mode, config, max_tokens=max_response_length)
        with (
            progress.bar(f"evaluate, {mode}", len(requests)) as advance,
            showing(advance, _generation(longest=max_response_length)),
        ):
            answers = _answer(requests, generate(requests, sampling), pool, advance, step=step)
        items[mode] = [
            graded_item(
                request.prompt.opened(rollout.opening),
                rollout.text,
                score,
                mode=mode,
                sample_index=rollout.sample_index,
                accuracy_key=config.accuracy_key,
                categories=config.categories,
                has_parser=pool.has_parser(request.prompt.data_source),
                length=len(rollout.response_ids),
                finish_reason=rollout.finish_reason,
                turns=tuple(turns_of(rollout.insertions, rollout.text, opening=rollout.opening))
                if rollout.insertions or rollout.opening
                else (),
            )
            for request, (rollout, score) in zip(requests, answers, strict=True)
        ]
        _report_failures(mode, items[mode])
        check_failed_share(
            [f"{item.uid} sample {item.sample_index}: {item.error}" for item in items[mode] if item.has_failed],
            len(items[mode]),
            max_failed_share=max_failed_share,
            of=f"rewards of the {mode} responses",
        )
    return items


def until_stopped(generate: GenerateTurns, stop: StopRequest) -> GenerateTurns:
    """As `generate`, but a requested stop ends it, by Interrupted, before the first response and after each."""

    def generated(requests: Requests, sampling: Sampling) -> RolloutStream:
        stop.raise_if_requested()
        for rollout in generate(requests, sampling):
            yield rollout
            stop.raise_if_requested()

    return generated


def _generation(*, longest: int) -> Callable[[], Now]:
    """Shows what is generated from now on: unfinished responses count by their tokens, of which each may have
    `longest`."""
    before, begun = TALLY.copy(), time.monotonic()

    def now() -> Now:
        done = TALLY.since(before)
        speed = done.sampled / (time.monotonic() - begun)
        words = f"{done.sampled:,} tokens, {speed:,.0f} tokens/s" if done.sampled else ""
        return Now(words, done.under_way / longest)

    return now


def _requests(prompts: Sequence[Prompt], mode: Mode, *, n: int, run_seed: int) -> list[GenerationRequest]:
    return [
        GenerationRequest(
            prompt=prompt,
            sample_index=index,
            seed=keyed_seed(run_seed, "evaluation", mode, prompt.uid, index),
            group_seed=keyed_seed(run_seed, "environment", "evaluation", prompt.uid),
        )
        for prompt in prompts
        for index in range(n)
    ]


def _sampling(mode: Mode, config: EvaluationConfig, *, max_tokens: int) -> Sampling:
    if mode == "greedy":
        return Sampling(temperature=0.0, max_tokens=max_tokens)
    return Sampling(temperature=config.temperature, top_p=config.top_p, max_tokens=max_tokens)


def _answer(
    requests: Sequence[GenerationRequest], rollouts: Iterator[Rollout], pool: RewardPool, advance: Advance, *, step: int
) -> list[tuple[Rollout, Score]]:
    """Responses and scores in the order of the requests. Scoring starts while other responses are still generated."""
    prompts = {request.prompt.uid: request.prompt for request in requests}
    answers: dict[tuple[str, int], tuple[Rollout, Future[Score]]] = {}
    for rollout in rollouts:
        future = pool.submit(RewardSample.of(prompts[rollout.prompt_uid], rollout, step=step))
        answers[rollout.prompt_uid, rollout.sample_index] = rollout, future
        advance()
    pool.flush()
    keys = [(request.prompt.uid, request.sample_index) for request in requests]
    return [(rollout, future.result()) for rollout, future in map(answers.__getitem__, keys)]


def _report_failures(mode: Mode, items: Sequence[EvaluationItem]) -> None:
    failed = [item for item in items if item.error is not None]
    if failed:
        _LOG.warning(
            "%d of %d %s responses have no score and are left out of the accuracy; the first: %s: %s",
            len(failed), len(items), mode, failed[0].uid, failed[0].error,
        )  # fmt: skip
