"""The rollout batches of a run in their order: each is collected in the step that learns from it, or with
`rollout.staleness: 1` in the step before.

A batch that was collected ahead is *pending* until its step. A checkpoint has the rollouts that were generated for it,
with the loader's place and the surplus before them; everything else follows from these.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from rl_core.config.run import RunConfig
from rl_core.config.tolerances import COMPARED_GROUPS, COMPARED_TOKENS
from rl_core.data.loader import PromptLoader
from rl_core.loop.collecting import Collected, Collector, policy_versions, training_sampling
from rl_core.loop.rollout_batch import EMPTY, RolloutBatch, read_batch
from rl_core.loop.step_recorder import StepRecorder
from rl_core.rewards.pool import RewardPool
from rl_core.rollout.requests import collect_groups, requests_for
from rl_core.timing import PhaseTimer
from rl_core.tools.conversations import Conversing, single_turn
from rl_core.types import Group, Prompt
from rl_core.workers.protocol import WorkerGroup

SURPLUS_FILE: Final = "surplus.parquet"
"""The file with the surplus in a checkpoint; absent if nothing was kept."""

PENDING_FILE: Final = "pending.parquet"
"""The file with the rollouts of the pending batch in a checkpoint."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueState:
    """What the steps after a checkpoint need of the batches before it: the loader's state after the prompts of the
    saved step, the groups that it has kept for the next one, and, if batches are collected ahead, all rollouts of the
    next step."""

    loader: Mapping[str, Any]
    surplus: RolloutBatch = EMPTY
    pending: RolloutBatch | None = None

    def save(self, folder: Path, *, step: int) -> None:
        """Write all but the loader's state into the folder of the checkpoint after `step`."""
        if self.surplus.groups:
            self.surplus.write(folder / SURPLUS_FILE, step=step)
        if self.pending is not None:
            self.pending.write(folder / PENDING_FILE, step=step + 1)


class BatchQueue:
    """Collects the rollout batch of each step in time. With `rollout.staleness: 1` the batch of step k + 1 is collected
    with the weights before the update of step k: in the background during the update, where workers generate meanwhile,
    and otherwise before it. Steps 1 and 2 both get what the initial weights sample."""

    def __init__(
        self,
        config: RunConfig,
        *,
        workers: WorkerGroup,
        rewards: RewardPool,
        loader: PromptLoader,
        recorder: StepRecorder,
        conversing: Conversing = single_turn,
    ) -> None:
        self._config = config
        self._conversing = conversing
        self._workers = workers
        self._rewards = rewards
        self._loader = loader
        self._recorder = recorder
        self._pending: Collected | None = None
        self._collecting: Future[Collected] | None = None
        self._sampled_now: Sequence[Group] = ()
        self._place: Mapping[str, Any] = loader.state_dict()
        self._surplus = EMPTY

    def next(self, step: int, timer: PhaseTimer) -> Collected:
        """The batch of the next step. Collects what has to be collected before the update, and begins what is collected
        during it. The generator must be awake."""
        batch = self._pending or self._collection(step, timer)()
        self._place, self._surplus = self._loader.state_dict(), batch.surplus
        if self._config.rollout.staleness:
            # Also in the last step of a run: a longer run that continues it finds the batch that it would have had.
            self._collect_ahead(step + 1, timer, prompts=[group.prompt for group in batch.generated.groups])
        return batch

    def finish(self, timer: PhaseTimer) -> None:
        """Wait for what is collected during the update."""
        collecting, self._collecting = self._collecting, None
        if collecting is not None:
            with timer.phase("generate_wait"):
                self._pending = collecting.result()

    @property
    def sampled_now(self) -> Sequence[Group]:
        """Groups that the weights before the update have sampled, if the batch of the step is older; else none."""
        return self._sampled_now

    @property
    def state(self) -> QueueState:
        """The state after the step whose batch was given last."""
        pending = None if self._pending is None else self._pending.generated
        return QueueState(loader=self._place, surplus=self._surplus, pending=pending)

    def restore(self, folder: Path, *, loader: Mapping[str, Any], step: int) -> list[str]:
        """Continue after `step`, from the folder of its checkpoint and the loader's state in it. Returns what of the
        rows or their order is another than there, in words: then the rollouts that the checkpoint has are of prompts
        that do not come next, and are left out."""
        differs = self._loader.load_state_dict(loader)
        self._place = self._loader.state_dict()
        if differs:
            return differs
        surplus, ahead = folder / SURPLUS_FILE, folder / PENDING_FILE
        self._surplus = read_batch(surplus, self._loader.find) if surplus.is_file() else EMPTY
        if self._config.rollout.staleness and ahead.is_file():  # a fork may have been forked from a run without
            pending = read_batch(ahead, self._loader.find)
            (version,) = policy_versions(pending.groups)
            self._pending = self._collection_of(step + 1, PhaseTimer(), recorded=pending, version=version)()
        return []

    def _collect_ahead(self, step: int, timer: PhaseTimer, *, prompts: Sequence[Prompt]) -> None:
        """`prompts` are some to compare generator and trainer on."""
        if not self._workers.cluster.is_split:
            self._pending = self._collection(step, timer)()
            self._sampled_now = self._pending.generated.groups
            return
        with timer.phase("agreement"):
            self._sampled_now = self._short_responses(prompts[:COMPARED_GROUPS], step=step)
        # What is seen of the timer here is the time that the update leaves to wait.
        collect = self._collection(step, PhaseTimer())
        thread = ThreadPoolExecutor(1, thread_name_prefix="collecting")
        # In the caller's context, so that messages of the thread belong to the same flow run.
        self._collecting = thread.submit(copy_context().run, collect)
        thread.shutdown(wait=False)  # the thread ends with this batch

    def _short_responses(self, prompts: Sequence[Prompt], *, step: int) -> list[Group]:
        """The first tokens of new responses: what is generated during the update comes too late to compare the weights
        before it."""
        n, sampling = self._config.rollout.n, training_sampling(self._config)
        short = replace(sampling, max_tokens=min(COMPARED_TOKENS, sampling.max_tokens))
        requests = requests_for(prompts, n, run_seed=self._config.seed, step=step)
        return collect_groups(prompts, list(self._workers.generate(requests, short)), n)

    def _collection(self, step: int, timer: PhaseTimer) -> Callable[[], Collected]:
        recorded = self._recorder.recorded_rollouts(step, self._loader.find)  # by an interrupted attempt
        return self._collection_of(step, timer, recorded=recorded, version=self._workers.policy_version)

    def _collection_of(
        self, step: int, timer: PhaseTimer, *, recorded: RolloutBatch, version: int
    ) -> Callable[[], Collected]:
        collector = Collector(
            step=step,
            config=self._config,
            workers=self._workers,
            rewards=self._rewards,
            timer=timer,
            policy_version=version,
            recorded=recorded,
            conversing=self._conversing,
        )
        return partial(collector.collect, self._loader.next_batch, kept=self._surplus)
