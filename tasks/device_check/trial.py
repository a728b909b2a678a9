"""The small training that the checks run: a tiny Qwen2.5-VL that counts objects in rendered scenes, or a given model
with rows for it. Its rollouts, how far generator and trainer differ on them, and steps on them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from rl_core.config.run import RunConfig
from rl_core.config.tolerances import AGREEMENT, AgreementBounds
from rl_core.data.prepared import PreparedDataset
from rl_core.device import computing_device
from rl_core.loop.collecting import Collected
from rl_core.loop.learning import learn
from rl_core.loop.rollout_batch import RolloutBatch
from rl_core.models.loading import banned_token_ids, load_architecture
from rl_core.progress import SilentProgress
from rl_core.rollout.requests import collect_groups, requests_for
from rl_core.run_directory import RunDirectory
from rl_core.timing import PhaseTimer
from rl_core.training.agreement import LogProbGap, broken_bounds, log_prob_gap
from rl_core.types import Float32Array, Group, Prompt, Rollout, Sampling, Score
from rl_core.workers.folders import Opening, WorkerFolders
from rl_core.workers.local_worker import LocalWorker
from rl_core.workers.opening import open_workers
from rl_core.workers.protocol import WorkerGroup, awake_generator
from tasks.device_check.check import Finding, Setting, compared
from tasks.device_check.model_rows import model_sections
from tasks.preparation import prepare_run

Dtype = Literal["float32", "bfloat16"]

STEPS = 3
PROMPTS, RESPONSES = 8, 4
LONGEST_RESPONSE = 48


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """A prepared run, whose folder has the initial model and the rows. If `in_process`, a single worker is in this
    process, where its engine and its pinned memory can be looked at."""

    config: RunConfig
    run: RunDirectory
    in_process: bool = False

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts of one training step, each with an image."""
        return PreparedDataset.open(self.run.data, "train")[: self.config.data.rollout_batch_size]

    def with_sections(self, **sections: Mapping[str, Any]) -> Self:
        """The same model and rows with other keys of some sections of the config."""
        fields = self.config.model_dump()
        changed = {name: fields[name] | values for name, values in sections.items()}
        return replace(self, config=RunConfig.model_validate(fields | changed))

    @contextmanager
    def workers(self) -> Iterator[WorkerGroup]:
        """The workers of the run with reference and critic, closed at the end of the `with` block."""
        datasets = PreparedDataset.open_all(self.run.data)
        opening = Opening(
            config=self.config,
            folders=WorkerFolders.of_run(self.config, self.run, datasets),
            total_optimizer_steps=STEPS,
            total_critic_steps=STEPS,
        )
        open_them = LocalWorker if self.in_process and self.config.cluster.is_alone else open_workers
        workers = open_them(opening, progress=SilentProgress())
        try:
            if self.config.algorithm.kl is not None:
                workers.load("reference", self.run.initial_model)
            if self.config.critic is not None:
                workers.load("critic", self.run.initial_model)
            yield workers
        finally:
            workers.close()


def prepare_trial(setting: Setting, dtype: Dtype, *, name: str = "run", **sections: Mapping[str, Any]) -> Trial:
    """Write the model and the rows into a new folder of this name: `setting.model`, in the number format that it has,
    with rows for it, or the tiny ones."""
    own = _tiny_sections(dtype) if setting.model is None else model_sections(setting)
    config = _trial_config(own)
    trial = Trial(config=config, run=RunDirectory(setting.folder / name)).with_sections(**sections)
    prepare_run(trial.config, trial.run, progress=SilentProgress())
    return trial


def _tiny_sections(dtype: Dtype) -> Mapping[str, Any]:
    scenes = {"type": "counting", "size": STEPS * PROMPTS, "object_size": [0.13, 0.13], "lighting": [1.0, 1.0]}
    rows = {"train": scenes | {"scene_seed": 1}, "validation": scenes | {"scene_seed": 2, "size": PROMPTS}}
    return {"data": rows | {"max_prompt_length": 64}, "model": {"source": {"type": "tiny"}, "dtype": dtype}}


def _trial_config(sections: Mapping[str, Any]) -> RunConfig:
    return RunConfig.model_validate(
        {
            "experiment": "device-check",
            "data": sections["data"] | {"rollout_batch_size": PROMPTS},
            "model": sections["model"],
            "reward": {"function": "length", "kwargs": {"target_length": 2, "max_length": LONGEST_RESPONSE}},
            "rollout": {"n": RESPONSES, "max_response_length": LONGEST_RESPONSE},
            "actor": {"global_batch_size": PROMPTS // 2},
            "trainer": {"max_steps": STEPS, "val_freq": 1, "save_freq": 1, "save_limit": STEPS},
            "evaluation": {"accuracy_key": "overall"},
        }
    )


def on_gpu() -> bool:
    """Whether the workers compute on a GPU."""
    return computing_device().type == "cuda"


UPDATES = 2
"""Steps that are compared: the numbers of the second one depend on the weights that the first one has made."""


def made_groups(trial: Trial, *lengths: int) -> list[Group]:
    """A group for each prompt of a step, with random responses of these many tokens in turn, none of them banned."""
    folder = trial.run.initial_model
    vocabulary = np.arange(load_architecture(folder).get_text_config().vocab_size)
    allowed = np.setdiff1d(vocabulary, banned_token_ids(folder))
    draw = np.random.default_rng(lengths)

    def rollout(prompt: Prompt, index: int) -> Rollout:
        length = lengths[index % len(lengths)]
        return Rollout(
            prompt_uid=prompt.uid,
            sample_index=index,
            response_ids=draw.choice(allowed, length).astype(np.int32),
            log_probs=np.zeros(length, np.float32),  # `learn_from` puts the trainer's in their place
            text="",
            finish_reason="stop",  # algorithm.overlong_filtering leaves none of them out
            policy_version=0,
        )

    indices = range(trial.config.rollout.n)
    return [Group(prompt=prompt, rollouts=[rollout(prompt, index) for index in indices]) for prompt in trial.prompts]


def learn_from(
    workers: WorkerGroup, trial: Trial, groups: Sequence[Group], *, timer: PhaseTimer | None = None
) -> Mapping[str, float]:
    """The metrics of one step of learning from these groups, in which every second response is rewarded. They are taken
    to be sampled by the trainer's present weights, so that one batch serves for several steps."""
    config = trial.config
    groups = _sampled_now(workers, groups)
    scores = {
        rollout.key: Score(components={"overall": float(rollout.sample_index % 2)})
        for group in groups
        for rollout in group.rollouts
    }
    collected = Collected(
        generated=RolloutBatch(groups=groups, scores=scores),
        scored=groups,
        batch=RolloutBatch(groups=groups, scores=scores),
        prompts=[group.prompt for group in groups],
        greedy_rewards={group.prompt.uid: 0.0 for group in groups},
    )
    learned = learn(
        collected,
        step=max(1, config.trainer.critic_warmup),
        config=config,
        kl_coef=None if config.algorithm.kl is None else config.algorithm.kl.coef,
        workers=workers,
        timer=timer or PhaseTimer(),
    )
    return learned.metrics


def gradient_norms(trial: Trial, groups: Sequence[Group]) -> list[float]:
    """The gradient norms of two steps on the same groups, by new workers with the initial weights."""
    with trial.workers() as workers:
        return [learn_from(workers, trial, groups)["actor/grad_norm"] for _ in range(UPDATES)]


def _sampled_now(workers: WorkerGroup, groups: Sequence[Group]) -> list[Group]:
    """The groups with the trainer's log-probs in place of the generator's."""
    (found,) = workers.compute("old_log_probs", [groups])

    def sampled_now(rollout: Rollout, log_probs: Float32Array) -> Rollout:
        return replace(rollout, log_probs=log_probs, policy_version=workers.policy_version)

    return [
        replace(group, rollouts=[*map(sampled_now, group.rollouts, log_probs)])
        for group, log_probs in zip(groups, found, strict=True)
    ]


AGREEMENT_ADVICE = (
    "a kernel of the generator or of the trainer computes another number: compare the rows on attention and matrix "
    "products; algorithm.old_log_probs: recompute with a correction trains in spite of it"
)


def generated(
    workers: WorkerGroup, trial: Trial, prompts: Sequence[Prompt], *, n: int, max_tokens: int
) -> Iterator[Rollout]:
    """n responses of up to `max_tokens` tokens to these prompts, the same in every call, from an awake generator."""
    requests = requests_for(prompts, n, run_seed=trial.config.seed, step=1)
    return workers.generate(requests, Sampling(temperature=trial.config.rollout.temperature, max_tokens=max_tokens))


def some_sampled(workers: WorkerGroup, trial: Trial, prompts: list[Prompt], *, n: int, max_tokens: int) -> list[Group]:
    """These responses in their groups."""
    return collect_groups(prompts, generated(workers, trial, prompts, n=n, max_tokens=max_tokens), n)


def sampled_once(workers: WorkerGroup, trial: Trial) -> list[Group]:
    """One step's groups, from a generator that is woken for them."""
    with awake_generator(workers):
        return some_sampled(workers, trial, trial.prompts, n=RESPONSES, max_tokens=LONGEST_RESPONSE)


def gap_of(workers: WorkerGroup, groups: list[Group]) -> LogProbGap:
    """How far the log-probs of generator and trainer differ."""
    (trained,) = workers.compute("old_log_probs", [groups])
    generator = [rollout.log_probs for group in groups for rollout in group.rollouts]
    return log_prob_gap(np.concatenate(generator), np.concatenate([one for group in trained for one in group]))


def agrees(gap: LogProbGap, bounds: AgreementBounds) -> bool:
    """Whether the difference is one of rounding."""
    return not any(broken_bounds(gap, bounds))


def agreement(check: str, workers: WorkerGroup, groups: list[Group], trial: Trial) -> Finding:
    """Whether the generator's log-probs of these groups are the trainer's."""
    gap, bounds = gap_of(workers, groups), AGREEMENT[trial.config.model.dtype]
    return compared(
        check,
        holds=agrees(gap, bounds),
        measured=f"{gap.count} log-probs differ by {gap.mean:.1e} in the mean (bound {bounds.mean:.0e}), at the 99.9th "
        f"percentile by {gap.percentile:.1e} (bound {bounds.percentile:.0e})",
        advice=AGREEMENT_ADVICE,
        figures={"tokens": gap.count, "mean": gap.mean, "percentile": gap.percentile, "largest": gap.largest},
    )
