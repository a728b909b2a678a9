"""What the process of a run does itself in a step, from 1 to 64 workers: `python -m benchmarks.driver`.

The run deals work to its workers, puts their results together, computes advantages and metrics, and records the step.
Here it does all this with its own code and with messages of the sizes that a step of a published 7B baseline has, while
the workers' results are made beforehand: nothing is generated or trained. So the seconds are those that all workers
wait for the run. Writes a file with `--output`.

What is assumed stands in the result: the lengths, and what a message costs between processes, which Ray copies once
into shared memory or sends over a network.
"""

import argparse
import json
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.speed.report import machine_facts
from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.loop.collecting import Collected, training_sampling
from rl_core.loop.learning import learn
from rl_core.loop.rollout_batch import RolloutBatch
from rl_core.loop.step_recorder import StepRecord, StepRecorder
from rl_core.rollout.requests import collect_groups, requests_for
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock
from rl_core.timing import PhaseTimer
from rl_core.training.agreement import NOTHING_COMPARED
from rl_core.training.batches import OptimizerBatch, OptimizerStepReport, TokenSums, UpdateBatch, UpdateResult
from rl_core.training.optimizer import StepOutcome
from rl_core.types import Float32Array, GenerationRequest, Group, Prompt, Rollout, RolloutKey, Sampling, Score
from rl_core.workers.dealing import deal, deal_update, dealt, equal_blocks, put_back
from rl_core.workers.protocol import Pass
from rl_core.workers.usage import Usage

BASELINE: Final = Path(__file__).parents[1] / "configs" / "baselines" / "qwen2_5_vl_7b_geo3k_grpo.yaml"
WORKERS: Final = (1, 2, 4, 8, 16, 32, 64)
STEP_SECONDS: Final = 120.0
"""A step of the baseline takes two minutes or more on 8 GPUs."""
MESSAGE_SECONDS: Final = 0.001
"""What a message costs whatever its size: a call of a Ray actor takes less than a millisecond."""
BYTES_A_SECOND: Final = 1e9
"""What a message costs for its size: a network of 10 Gbit/s. In shared memory it is a tenth of this."""
PROMPT_TOKENS: Final = 600
IMAGE_TOKENS: Final = 400
RESPONSE_TOKENS: Final = 500
"""Mean of the responses; their lengths are log-normal, cut at the longest length."""
METRICS: Final = (
    "pg_loss",
    "pg_clipfrac",
    "pg_clipfrac_lower",
    "approx_kl",
    "entropy",
    "kl_loss",
    "ratio",
    "advantages",
)
PATCH_BYTES: Final = 4 * 1176 * 4
"""Of a token of an image: 4 patches of 2 x 3 x 14 x 14 float32."""


@dataclass
class Sent:
    """Messages between the run and its workers: how many, and how many bytes. Rollouts come one by one while the
    generators work, so nobody waits for these messages; they are counted apart."""

    messages: int = 0
    num_bytes: int = 0
    rollouts: int = 0
    rollout_bytes: int = 0

    def to_worker(self, value: object) -> None:
        """Pickle a message, as Ray does."""
        self._count(pickle.dumps(value, protocol=5))

    def to_run(self, message: bytes) -> Any:
        """Unpickle an answer that a worker has pickled."""
        self._count(message)
        return pickle.loads(message)  # noqa: S301 - our own

    def rollout(self, message: bytes) -> Rollout:
        """Unpickle a rollout that a generator has finished."""
        self.rollouts += 1
        self.rollout_bytes += len(message)
        found: Rollout = pickle.loads(message)  # noqa: S301 - our own
        return found

    def _count(self, message: bytes) -> None:
        self.messages += 1
        self.num_bytes += len(message)

    @property
    def seconds(self) -> float:
        """What the messages for which the workers wait take beyond pickling, by assumption."""
        return self.messages * MESSAGE_SECONDS + self.num_bytes / BYTES_A_SECOND


@dataclass
class Step:
    """The prompts of a step and what the generators answer."""

    config: RunConfig
    prompts: Sequence[Prompt]
    rollouts: dict[RolloutKey, Rollout]
    scores: dict[RolloutKey, Score]

    @classmethod
    def of(cls, config: RunConfig) -> "Step":
        draw = np.random.default_rng(0)
        prompts = [_prompt(f"{number:016x}", draw) for number in range(config.data.rollout_batch_size)]
        longest = config.rollout.max_response_length
        rollouts, scores = {}, {}
        for prompt in prompts:
            for index in range(config.rollout.n):
                length = min(longest, 1 + int(draw.lognormal(np.log(RESPONSE_TOKENS) - 0.25, 0.7)))
                rollout = Rollout(
                    prompt_uid=prompt.uid,
                    sample_index=index,
                    response_ids=draw.integers(0, 150_000, length).astype(np.int32),
                    log_probs=-draw.random(length, dtype=np.float32),
                    text="word " * (length * 3 // 4),
                    finish_reason="stop" if length < longest else "length",
                    policy_version=0,
                )
                rollouts[rollout.key] = rollout
                right = float(draw.random() < 0.4)
                components = {"overall": 0.9 * right + 0.1, "accuracy": right, "format": 1.0}
                scores[rollout.key] = Score(components=components, parsed="3")
        return cls(config=config, prompts=prompts, rollouts=rollouts, scores=scores)


def _prompt(uid: str, draw: np.random.Generator) -> Prompt:
    ids = draw.integers(0, 150_000, PROMPT_TOKENS).astype(np.int32)
    text = "question " * (PROMPT_TOKENS - IMAGE_TOKENS)
    return Prompt(
        uid=uid,
        data_source="geometry3k",
        question=text,
        text=text,
        answer="3",
        token_ids=ids,
        engine_token_ids=ids[IMAGE_TOKENS - 1 :],
        image_uids=(f"{uid}{uid}",),
    )


@dataclass
class RecordedWorkers:
    """The run's side of a group of workers, as a WorkerGroup: deals, sends, receives and puts back. The answers are
    pickled before the clock starts."""

    workers: int
    step: Step
    sent: Sent = field(default_factory=Sent)
    policy_version: int = 0
    of_workers: float = 0.0
    """Processor seconds that the workers would have spent."""

    def __post_init__(self) -> None:
        rollouts = self.step.rollouts
        self._rollouts = {key: pickle.dumps(rollout, protocol=5) for key, rollout in rollouts.items()}
        self._log_probs = {key: rollout.log_probs - 0.1 for key, rollout in rollouts.items()}

    def generate(self, requests: Sequence[GenerationRequest], sampling: Sampling) -> Iterator[Rollout]:
        for block in equal_blocks(requests, self.workers):
            self.sent.to_worker((block, sampling))
            for request in block:
                yield self.sent.rollout(self._rollouts[request.prompt.uid, request.sample_index])

    def compute(self, what: Pass, batches: Sequence[Sequence[Group]]) -> list[list[list[Float32Array]]]:
        places = [deal(groups, self.workers) for groups in batches]
        parts = [dealt(groups, places_of) for groups, places_of in zip(batches, places, strict=True)]
        found = []
        for of_worker in zip(*parts, strict=True):
            self.sent.to_worker(of_worker)
            answer = [[self._log_probs_of(group) for group in part] for part in of_worker]
            found.append(self.sent.to_run(self._unclocked(answer)))
        return [put_back(results, of) for results, of in zip(zip(*found, strict=True), places, strict=True)]

    def _log_probs_of(self, group: Group) -> list[Float32Array]:
        return [self._log_probs[rollout.key] for rollout in group.rollouts]

    def update(self, batch: UpdateBatch) -> UpdateResult:
        results = []
        for part in deal_update(batch, self.workers):
            self.sent.to_worker(part)
            answer = [_report(each) for each in part.policy]
            results.append(self.sent.to_run(self._unclocked(answer)))
        merged = [
            OptimizerStepReport(tokens=[one for each in step for one in each.tokens], outcome=step[0].outcome)
            for step in zip(*results, strict=True)
        ]
        return UpdateResult(policy=merged, critic=[], log_prob_gap=NOTHING_COMPARED, nonfinite_streak=0, seconds={})

    def _unclocked(self, answer: object) -> bytes:
        """What a worker would have pickled meanwhile."""
        begun = time.process_time()
        message = pickle.dumps(answer, protocol=5)
        self.of_workers += time.process_time() - begun
        return message


def _report(batch: OptimizerBatch) -> OptimizerStepReport:
    numbers = [1.0 / (1 + place) for place in range(len(batch.groups))]
    tokens = [TokenSums(sums={f"actor/{name}": numbers for name in METRICS}, weights=numbers)] if numbers else []
    return OptimizerStepReport(tokens=tokens, outcome=StepOutcome(grad_norm=1.0, lr=1e-6, applied=True))


def measured(step: Step, workers: int) -> dict[str, Any]:
    """One step of the run with this many workers."""
    config = step.config
    recorded = RecordedWorkers(workers=workers, step=step)
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder) / "run")
        with RunLock(run.lock):
            recorder = StepRecorder(run)
            begun = time.process_time()
            _take(step, config, recorded, recorder)
            processor = time.process_time() - begun - recorded.of_workers
    padded, sent = _padded_bytes(step), recorded.sent
    seconds, num_bytes = processor + sent.seconds, sent.num_bytes + sent.rollout_bytes
    return {
        "workers": workers,
        "prompts": len(step.prompts),
        "processor_seconds": round(processor, 3),
        "message_seconds": round(sent.seconds, 3),
        "share_of_a_step": round(seconds / STEP_SECONDS, 4),
        "messages": sent.messages,
        "rollout_messages": sent.rollouts,
        "megabytes": round(num_bytes / 1e6, 1),
        "share_of_padded_with_repeated_images": round(num_bytes / sum(padded), 4),
        "share_of_padded_without_images": round(num_bytes / padded[0], 4),
    }


def _take(step: Step, config: RunConfig, workers: RecordedWorkers, recorder: StepRecorder) -> None:
    """What TrainingLoop does of a step, but for the scores, which other processes compute."""
    timer = PhaseTimer()
    requests = requests_for(step.prompts, config.rollout.n, run_seed=config.seed, step=1)
    rollouts = workers.generate(requests, training_sampling(config))
    groups = collect_groups(step.prompts, rollouts, config.rollout.n)
    batch = RolloutBatch(groups=groups, scores=step.scores)
    collected = Collected(generated=batch, scored=groups, batch=batch, prompts=step.prompts)
    kl = config.algorithm.kl
    learned = learn(
        collected,
        step=1,
        config=config,
        kl_coef=None if kl is None else kl.coef,
        workers=workers,  # type: ignore[arg-type]  # it has the methods that this config uses
        timer=timer,
    )
    recorder.record(StepRecord.of(1, collected, learned, seconds=timer.result(), usage=Usage(workers=[])), None)


def _padded_bytes(step: Step) -> tuple[int, int]:
    """Bytes of a step in the form of peers: of every response, prompt and response padded to their longest lengths as
    int64 (ids, mask, three rows of positions), the response again with its mask, log-probs twice and advantages in
    float32, there for generation, reference and update; and the pixels of the image, repeated for every response."""
    prompt, response = step.config.data.max_prompt_length, step.config.rollout.max_response_length
    samples = len(step.rollouts)
    sequence = 8 * 5 * (prompt + response) + 8 * 2 * response + 4 * 3 * response
    return 3 * samples * sequence, samples * IMAGE_TOKENS * PATCH_BYTES


def _for_workers(workers: int) -> RunConfig:
    """The baseline with as many prompts for each worker as it has on 8."""
    return load_config(BASELINE, [f"data.rollout_batch_size={64 * workers}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    facts = machine_facts("benchmarks.driver", sys.argv[1:])
    step = Step.of(load_config(BASELINE))
    assumed = {
        "config": BASELINE.name,
        "responses_a_prompt": step.config.rollout.n,
        "prompt_tokens": PROMPT_TOKENS,
        "mean_response_tokens": round(float(np.mean([len(r.response_ids) for r in step.rollouts.values()]))),
        "step_seconds": STEP_SECONDS,
        "message_seconds": MESSAGE_SECONDS,
        "bytes_a_second": BYTES_A_SECOND,
    }
    measured(step, 1)  # imports and caches
    result = {
        "same_batch": [measured(step, workers) for workers in WORKERS],
        "batch_grows_with_workers": [measured(Step.of(_for_workers(workers)), workers) for workers in WORKERS[3:]],
    }
    text = json.dumps(facts | {"assumed": assumed} | result, indent=1)
    print(text)
    if arguments.output:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
