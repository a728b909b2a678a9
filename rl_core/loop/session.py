"""The session of a run: holds what is expensive to start, starts it on first use, and shares it between the stages.

The flow owns it; tasks look it up by the run's name, because workers and reward pools cannot be pickled.
"""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from rl_core.checkpoints.manifest import Checkpoint
from rl_core.checkpoints.store import CheckpointStore
from rl_core.config.run import RunConfig
from rl_core.config.tools import ToolsConfig
from rl_core.data.loader import PromptLoader
from rl_core.data.prepared import IMAGES_FILE, PreparedDataset, arrange
from rl_core.evaluation.base_answers import BaseAnswers
from rl_core.evaluation.evaluate import evaluate_prompts, until_stopped
from rl_core.evaluation.items import EvaluationItem, Mode
from rl_core.evaluation.response_file import ResponseFile
from rl_core.files import committed_folder
from rl_core.loop.cold_start import TargetRenderer, run_cold_start
from rl_core.loop.machine_settings import resolve_for_this_machine
from rl_core.loop.step_recorder import StepRecorder
from rl_core.loop.training_loop import EpochResult, LoopParts, TrainingLoop
from rl_core.loop.validation import Validator
from rl_core.planning.batches import batch_plan, prompts_per_draw
from rl_core.planning.epoch_spans import START, DataPlace
from rl_core.progress import Progress
from rl_core.records.metrics_log import RunLogs
from rl_core.rewards.pool import RewardPool
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import ensure_held
from rl_core.stop import StopRequest
from rl_core.tools.conversations import Conversing, conversing
from rl_core.tools.isolated_tools import IsolatedTools
from rl_core.tools.journal import Journal
from rl_core.types import EvaluatedModel, Requests, RolloutStream, Sampling
from rl_core.workers.folders import Opening, WorkerFolders, base_model
from rl_core.workers.opening import open_workers
from rl_core.workers.protocol import WorkerGroup, awake_generator


class Session:
    """The workers, rewards and data of one run, whose rows and batch size are what they are `since` a place."""

    def __init__(
        self,
        config: RunConfig,
        run: RunDirectory,
        *,
        progress: Progress,
        stop: StopRequest,
        since: DataPlace = START,
    ) -> None:
        self.config = config
        self._since = since
        self.run = run
        self._progress = progress
        self._stop = stop
        self._workers: WorkerGroup | None = None
        self._loop: TrainingLoop | None = None
        self._rewards: RewardPool | None = None
        self._tools: IsolatedTools | None = None

    @property
    def rewards(self) -> RewardPool:
        """Started on first use."""
        if self._rewards is None:
            pool = RewardPool(
                self.config.reward,
                log_event=RunLogs(self.run).log_event,
                image_store=self.run.data / IMAGES_FILE,
                answer_names=self.config.answer_names,
            )
            self._rewards = pool.__enter__()
        return self._rewards

    @property
    def tools(self) -> IsolatedTools | None:
        """What calls tools in separate processes, started on first use; None where there are none."""
        config = self.config.tools
        if self._tools is None and config is not None and config.has_processes:
            tools = IsolatedTools(
                config,
                self.config.data,
                image_store=self.run.data / IMAGES_FILE,
                journal=Journal(self.run.tool_calls, needed_from=self._earliest_version),
                log_event=RunLogs(self.run).log_event,
            )
            self._tools = tools.__enter__()
        return self._tools

    def _earliest_version(self) -> int:
        """The oldest weights that may sample again after an interruption: those of the newest checkpoint, or with a
        staleness those before it."""
        checkpoint = self.store.latest()
        return 0 if checkpoint is None else checkpoint.step - self.config.rollout.staleness

    @property
    def workers(self) -> WorkerGroup:
        """The workers, started on first use; before them the processes of rewards and tools, because a process that
        starts later would share the machine with the generator's memory and threads."""
        if self._workers is None:
            _ = self.rewards, self.tools
            plan = batch_plan(self.config, len(self._datasets["train"]), since=self._since)
            config = resolve_for_this_machine(self.config, self.run)
            opening = Opening(
                config=config,
                folders=WorkerFolders.of_run(self.config, self.run, self._datasets),
                total_optimizer_steps=plan.total_optimizer_steps,
                total_critic_steps=plan.total_critic_steps,
            )
            with self._progress.wait("load the model"):
                self._workers = open_workers(opening, progress=self._progress)
            # Otherwise every eighth step or so has a collection of garbage that takes 0.4 s, in which the workers wait.
            gc.collect()
            gc.freeze()
        return self._workers

    @cached_property
    def store(self) -> CheckpointStore:
        """The run's checkpoints."""
        return CheckpointStore(
            self.run.checkpoints,
            save_limit=self.config.trainer.save_limit,
            log_event=RunLogs(self.run).log_event,
        )

    @property
    def base_model(self) -> Path:
        """Hugging Face folder of the model that RL starts from."""
        return base_model(self.config, self.run)

    def run_cold_start(self) -> Mapping[str, float]:
        """Fine-tune the initial model on rendered answers, and write it as the run's base model. Raises Interrupted if
        a stop was requested: what was learned is lost then."""
        config = self.config.cold_start
        assert config is not None, "else RL starts from the initial model"
        self.workers.load("policy", self.run.initial_model)
        metrics = run_cold_start(
            config,
            loader=self._loader("train" if config.source is None else "cold_start", config.batch_size),
            targets=TargetRenderer(config.target_template, model_folder=self.run.initial_model),
            workers=self.workers,
            max_nonfinite_steps=self.config.trainer.max_nonfinite_steps,
            progress=self._progress,
            stop=self._stop,
        )
        with committed_folder(self.run.base_model) as folder:
            self.workers.export(folder)
        return metrics

    def train_epoch(
        self,
        epoch: int,
        *,
        because: str = "",
        base: BaseAnswers | None = None,
        after_step: Callable[[], None] = lambda: None,
    ) -> EpochResult:
        """From the last complete checkpoint on, as `TrainingLoop.train_epoch`; `because` says how the attempt before
        ended, and `base` is for the validation before the first step."""
        if self._loop is None:
            self._loop = self._open_loop(because, base)
        return self._loop.train_epoch(epoch, after_step=after_step)

    def evaluate(
        self,
        model: EvaluatedModel,
        responses: ResponseFile,
        *,
        known: Mapping[Mode, Sequence[EvaluationItem]] = MappingProxyType({}),
    ) -> dict[Mode, list[EvaluationItem]]:
        """[mode] -> items: answer the held-out prompts with the base or the trained model; responses in the file are
        not repeated, and it is not asked in a mode whose items are `known`. Raises Interrupted if a stop was requested;
        the finished responses are kept in the file."""
        if known.keys() >= {*self.config.evaluation.modes}:  # nor does a generator start for them
            return {mode: [*known[mode]] for mode in self.config.evaluation.modes}
        with self._stop.taking_effect(lambda: "at the next response at the latest"):
            step = 0
            if model == "base":
                self._load_base()
            else:
                checkpoint = self.trained_checkpoint()
                self._load_trained(checkpoint)
                step = checkpoint.step
            answering = self._conversing(self.config.held_out_tools)
            generate = until_stopped(self._generate_locked, self._stop)
            with awake_generator(self.workers):
                return evaluate_prompts(
                    self._datasets["validation"][:],
                    generate=responses.around(answering(generate, self.workers.policy_version)),
                    pool=self.rewards,
                    config=self.config.evaluation,
                    max_response_length=self.config.rollout.max_response_length,
                    run_seed=self.config.seed,
                    progress=self._progress,
                    step=step,
                    known=known,
                    max_failed_share=self.config.reward.max_failed_share,
                )

    def _generate_locked(self, requests: Requests, sampling: Sampling) -> RolloutStream:
        for rollout in self.workers.generate(requests, sampling):
            ensure_held(self.run.lock)
            yield rollout

    def export_trained(self, folder: Path) -> Checkpoint:
        """Write the checkpoint chosen by `merge.checkpoint` in Hugging Face format into an existing empty folder."""
        checkpoint = self.trained_checkpoint()
        self._load_trained(checkpoint)
        self.workers.export(folder)
        return checkpoint

    def trained_checkpoint(self) -> Checkpoint:
        """The checkpoint that is evaluated and merged. Raises ValueError if there is none."""
        checkpoint = self.store.best() if self.config.merge.checkpoint == "best" else self.store.latest()
        if checkpoint is None:
            raise ValueError(f"no {self.config.merge.checkpoint} checkpoint in {self.run.checkpoints}: train first")
        return checkpoint

    def close(self) -> None:
        """End workers, rewards and tools, even if ending one of them fails. The next use starts new ones."""
        workers, pools = self._workers, (self._rewards, self._tools)
        self._workers = self._loop = self._rewards = self._tools = None
        with ExitStack() as stack:
            for pool in pools:
                if pool is not None:
                    stack.callback(pool.__exit__, None, None, None)
            if workers is not None:
                stack.callback(workers.close)

    def _load_base(self) -> None:
        self._loop = None  # the next use resumes from the last checkpoint
        self.workers.load("policy", self.base_model)

    def _load_trained(self, checkpoint: Checkpoint) -> None:
        self._loop = None
        self.workers.load("saved policy", checkpoint.folder)

    def _open_loop(self, because: str, base: BaseAnswers | None) -> TrainingLoop:
        if self.config.algorithm.kl is not None:
            self.workers.load("reference", self.base_model)
        validator = Validator(
            config=self.config,
            prompts=self._datasets["validation"][:],
            rewards=self.rewards,
            progress=self._progress,
            base=base,
            conversing=self._conversing(self.config.held_out_tools),
        )
        parts = LoopParts(
            workers=self.workers,
            rewards=self.rewards,
            loader=self._loader("train", prompts_per_draw(self.config), arranged=True),
            validator=validator,
            store=self.store,
            recorder=StepRecorder(self.run),
            progress=self._progress,
            stop=self._stop,
            conversing=self._conversing(self.config.tools),
        )
        return TrainingLoop(self.config, parts, base_model=self.base_model, because=because, since=self._since)

    def _loader(self, split: str, batch_size: int, *, arranged: bool = False) -> PromptLoader:
        """Weighted sources and the curriculum apply to RL alone; a cold start uses each row equally often."""
        dataset, data = self._datasets[split], self.config.data
        return PromptLoader(
            dataset,
            batch_size=batch_size,
            seed=self.config.seed,
            shuffle=data.shuffle,
            arrangement=arrange(dataset, data) if arranged else None,
            content=dataset.content_digest() if arranged else "",
        )

    def _conversing(self, tools: ToolsConfig | None) -> Conversing:
        images = self._datasets["train"].images
        return conversing(tools, self.config.data, self.run.initial_model, isolated=self.tools, images=images)

    @cached_property
    def _datasets(self) -> Mapping[str, PreparedDataset]:
        """[split] -> prepared data. All files are hashed once, which takes a while if there are many images."""
        return PreparedDataset.open_all(self.run.data)


@contextmanager
def open_session(
    config: RunConfig, run: RunDirectory, *, progress: Progress, stop: StopRequest, since: DataPlace = START
) -> Iterator[Session]:
    """A session that is closed at the end of the `with` block. Nothing starts before its first use."""
    session = Session(config, run, progress=progress, stop=stop, since=since)
    try:
        yield session
    finally:
        session.close()
