"""What becomes of a drawn configuration: a sentence, or one real step.

The way of a configuration is that of `sightline run`: it is validated, planned, its data are prepared, and the session
trains. What is costly stays for the next one that asks for the same: prepared rows and models by the digest of their
stage, the engine by its arguments, reward processes by their section. All of these are the real ones; an engine takes
the new weights at each sync, as in any run.
"""

import math
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rl_core.config.loading import ConfigError, validate_config
from rl_core.config.reward import RewardConfig
from rl_core.config.run import RunConfig
from rl_core.data.manifest import DataManifest
from rl_core.digests import digest_of
from rl_core.loop.draws import TooFewInformativeGroups
from rl_core.loop.session import Session, open_session
from rl_core.models.pixels import PixelCache
from rl_core.problem import PlanError, raise_if_fatal
from rl_core.progress import LogEvent, SilentProgress
from rl_core.records.metrics_log import read
from rl_core.rewards.pool import RewardPool
from rl_core.rollout.engine_spec import EngineSpec
from rl_core.rollout.vllm_engine import VllmEngine
from rl_core.run_directory import RunDirectory
from rl_core.stop import Interrupted, StopRequest
from tasks.cache.stages import stage_digests
from tasks.planning.problems import prepared_problems
from tasks.planning.trials import find_problems
from tasks.preparation import prepare_run
from tests.drawn.profiles import Tree
from tests.rl_core.steps import stopped_in_a_step

Ending = Literal["ran", "invalid", "planned against", "data refused", "gave up"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a configuration ended.

    Attributes:
        ending: A step was made; or who refused: validation, plan, preparation, the group filter.
        reasons: The keys that were named.
        message: The refusal in full.
        metrics: The step's.
    """

    ending: Ending
    reasons: tuple[str, ...] = ()
    message: str = ""
    metrics: dict[str, float] | None = None


_NOT_THE_ENGINE = {"n", "temperature", "max_log_prob_gap", "max_mean_log_prob_gap", "min_log_prob_correlation"}
"""Keys of `rollout` that an engine is not made with."""


class LentEngine(VllmEngine):
    """An engine that outlives the worker that asked for it; its weights are loaded again for the next one."""

    def close(self) -> None:
        self.policy_version = None

    def end(self) -> None:
        super().close()


class LentPool(RewardPool):
    """Reward processes that outlive a session; `log_event` is that of the session that they are lent to."""

    log_event: LogEvent | None = None

    def __init__(self, config: RewardConfig, **options: Any) -> None:
        super().__init__(config, log_event=self._log, **options)

    def _log(self, kind: str, **facts: Any) -> None:
        if self.log_event is not None:
            self.log_event(kind, **facts)

    def __enter__(self) -> RewardPool:
        return self

    def __exit__(self, *unused: object) -> None:
        pass

    def start(self) -> "LentPool":
        super().__enter__()
        return self

    def end(self) -> None:
        super().__exit__(None, None, None)


class Workshop:
    """Refuses or runs configurations, one after the other, in a folder that holds what they name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._engine: tuple[str, LentEngine] | None = None
        self._pools: dict[str, tuple[str, LentPool]] = {}
        self.engines_started = 0

    def lend_engine(self, spec: EngineSpec, pixels: PixelCache, **arguments: Any) -> LentEngine:
        """Stands where the worker makes its engine."""
        spec = replace(spec, model=spec.model.resolve())
        bound = [spec.dtype, spec.max_prompt_length, spec.images_per_prompt, spec.videos_per_prompt]
        key = digest_of([str(spec.model), bound, spec.rollout.model_dump(exclude=_NOT_THE_ENGINE)])
        if self._engine is None or self._engine[0] != key:
            self._close_engine()
            self._engine = key, LentEngine(spec, pixels, **arguments)
            self.engines_started += 1
        return self._engine[1]

    def lend_pool(
        self,
        config: Any,
        *,
        image_store: Path | None = None,
        log_event: Any = None,
        answer_names: Sequence[str] = ("answer",),
    ) -> LentPool:
        """Stands where a session or, without images, a trial of the reward makes its reward processes."""
        user = "trial" if image_store is None else "session"
        place = image_store and str(image_store.resolve())
        key = digest_of([config.model_dump(mode="json"), place, list(answer_names)])
        if user not in self._pools or self._pools[user][0] != key:
            self._close_pool(user)
            self._pools[user] = key, LentPool(config, image_store=image_store, answer_names=answer_names).start()
        pool = self._pools[user][1]
        pool.log_event = log_event
        return pool

    def close(self) -> None:
        """End everything that was lent."""
        self._close_engine()
        for user in list(self._pools):
            self._close_pool(user)

    def _close_engine(self) -> None:
        if self._engine is not None:
            self._engine[1].end()
            self._engine = None

    def _close_pool(self, user: str) -> None:
        if user in self._pools:
            self._pools.pop(user)[1].end()

    def outcome(self, tree: Tree) -> Outcome:
        """Validate, plan, prepare and run. Whatever else is raised on the way is a defect."""
        try:
            config = validate_config(tree, "drawn")
        except ConfigError as error:
            return Outcome(ending="invalid", reasons=_named_keys(str(error)), message=str(error))
        self._count += 1
        run = RunDirectory(self._folder / "runs" / f"{self._count:04d}")
        problems = find_problems(config, run)
        try:
            raise_if_fatal(problems)
            prepared = self._prepared(config)
            raise_if_fatal(prepared_problems(config, DataManifest.read(prepared.data)))
        except PlanError as error:
            reasons = tuple(problem.where for problem in error.problems)
            return Outcome(ending="planned against", reasons=reasons, message=str(error))
        except (ValueError, OSError) as error:
            named = _NAMED_BY_PREPARATION.match(str(error))
            if named is None:
                raise
            return Outcome(ending="data refused", reasons=(named.group(),), message=str(error))
        try:
            return self._ran(config, run, prepared)
        finally:
            shutil.rmtree(run.root)

    def _prepared(self, config: RunConfig) -> RunDirectory:
        """The stage `prepare`, made once for all configurations that share it."""
        prepared = RunDirectory(self._folder / "prepared" / stage_digests(config)["prepare"])
        if not prepared.data.is_dir():
            prepare_run(config, prepared, progress=SilentProgress())
        return prepared

    def _ran(self, config: RunConfig, run: RunDirectory, prepared: RunDirectory) -> Outcome:
        run.initial_model.parent.mkdir(parents=True)
        run.initial_model.symlink_to(prepared.initial_model)
        run.data.symlink_to(prepared.data)
        stop = StopRequest()
        with open_session(config, run, progress=SilentProgress(), stop=stop) as session:
            if config.cold_start is not None:
                session.run_cold_start()
            try:
                _one_step(session, stop)
            except TooFewInformativeGroups as error:
                return Outcome(ending="gave up", reasons=("algorithm.online_filtering",), message=str(error))
        return Outcome(ending="ran", metrics=_checked_metrics(run))


def _one_step(session: Session, stop: StopRequest) -> None:
    """The first step with its validation, its records and its checkpoint."""
    try:
        with stopped_in_a_step(stop):
            session.train_epoch(1)
    except Interrupted:
        return
    raise AssertionError("a run that was asked to stop went on")


_NAMED_BY_PREPARATION = re.compile(
    r"the data cannot be used|data source \w+|(train|validation)(?=: )|(data|model)\.[\w.]+"
)
"""How a preparation begins to say what is wrong."""

_KEY = re.compile(r"^  (\S+): ", re.MULTILINE)


def _named_keys(message: str) -> tuple[str, ...]:
    """The keys that a refused validation names, a line each."""
    return tuple(_KEY.findall(message))


def _checked_metrics(run: RunDirectory) -> dict[str, float]:
    (step,) = [line for line in read(run.metrics) if line["step"] == 1]
    every = [value for line in read(run.metrics) for value in line.values()]
    assert all(isinstance(value, int | float) and math.isfinite(value) for value in every), step
    assert run.rollouts(1).is_file()
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-000001"]
    return step
