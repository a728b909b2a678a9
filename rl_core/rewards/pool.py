"""The reward pool: scores samples in isolated processes (docs/architecture.md, "Rewards are isolated")."""

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType

from rl_core.config.reward import RewardConfig
from rl_core.isolation.pool import IsolatedPool
from rl_core.progress import LogEvent
from rl_core.rewards.order import RewardOrder
from rl_core.rewards.registry import resolve_rewards
from rl_core.rewards.routing import PendingScore
from rl_core.rewards.sample import RewardSample
from rl_core.types import Score


class RewardPool:
    """Scores samples in processes of their own. A context manager; enter it before the generator starts. A call that
    fails costs its own sample, whose Score has an `error`. A score depends on its sample alone, except that of a
    function of REWARD_TYPE batch, which gets all samples that a `flush` finds at once, ordered by prompt uid and sample
    index."""

    def __init__(
        self,
        config: RewardConfig,
        *,
        log_event: LogEvent | None = None,
        image_store: Path | None = None,
        answer_names: Sequence[str] = ("answer",),
    ) -> None:
        """Starts nothing. `log_event` is called for every batch that failed, `answer_names` as in RewardOrder. Raises
        ValueError as resolve_rewards does."""
        self._routing = resolve_rewards(config)
        order = RewardOrder(
            specs=self._routing.specs,
            timeout_seconds=config.timeout_seconds,
            batch_timeout_seconds=config.batch_timeout_seconds,
            load_timeout_seconds=config.load_timeout_seconds,
            memory_limit_bytes=int(config.memory_limit_gib * 2**30),
            answer_names=answer_names,
        )
        self._pool = IsolatedPool(
            order,
            processes=config.workers,
            async_calls=config.async_calls,
            log_event=log_event,
            image_store=image_store,
        )

    def has_parser(self, data_source: str) -> bool:
        """Whether the scores of this source's samples have the answer that was read from the response."""
        route = self._routing.route_of(data_source)
        return route is not None and route.reader is not None

    def __enter__(self) -> "RewardPool":
        self._pool.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.__exit__(kind, error, traceback)

    def submit(self, sample: RewardSample) -> "Future[Score]":
        """Have a sample scored. Samples of a fast reward may be held back until `flush`, and samples of a reward of
        REWARD_TYPE batch always are. Raises RuntimeError when the pool is closed, or cannot score any more."""
        route = self._routing.route_of(sample.data_source)
        if route is None:
            return _failed(f"no reward for data source {sample.data_source!r}: name it in reward.by_source")
        return PendingScore(route, [self._pool.add(term.function_index, sample) for term in route.terms]).score

    def flush(self) -> None:
        """Score the samples that were held back."""
        self._pool.flush()

    def score_all(self, samples: Sequence[RewardSample]) -> list[Score]:
        """Scores in the order of the samples."""
        futures = [self.submit(sample) for sample in samples]
        self.flush()
        return [future.result() for future in futures]


def _failed(reason: str) -> "Future[Score]":
    future: Future[Score] = Future()
    future.set_result(Score(components={}, error=reason))
    return future
