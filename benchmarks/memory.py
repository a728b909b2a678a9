"""The forecast of memory against what runs take: `python -m benchmarks.memory --output benchmarks/results/memory.json`.

Each configuration is a process of its own: it prepares a tiny random model and its data, generates, updates with
responses of the greatest length, saves, and does all of it again. Measured is the peak of the resident memory in each
phase (rl_core.workers.usage), together with what rl_core.planning.memory forecasts for that configuration. A
configuration is not a run, so its forecast is without the libraries of one. Whole runs are measured too: the peaks that
their steps record, in the process of `sightline run`, with cold start, validation and checkpoints. `in_use` is the most
of the resident memory that was not in freed blocks which malloc kept: what an allocator without such blocks would have
taken.
"""

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import psutil

from benchmarks.speed.report import machine_facts
from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.data.prepared import PreparedDataset
from rl_core.planning.memory import RUN_LIBRARIES, memory_forecast
from rl_core.planning.memory_rows import GIB, Phase
from rl_core.planning.model_sizes import model_sizes, read_sizes
from rl_core.planning.settings import resolve_auto
from rl_core.run_directory import RunDirectory
from rl_core.training.batches import OptimizerBatch, UpdateBatch
from rl_core.types import GenerationRequest, Prompt, Sampling, TrainGroup
from rl_core.workers.folders import Opening, WorkerFolders
from rl_core.workers.local_worker import LocalWorker
from tasks.results.measured_memory import measured_peaks
from tasks.results.run_facts import environment_facts
from tests.rl_core.builders import groups_of, make_train_group
from tests.rl_core.workers.trials import PLAIN_TOKENS, QUICKSTART, prepare

ROUNDS = 2
PROMPTS = 8
RESPONSES = 4
WATCH_SECONDS = 0.005

_SIZE = "hidden_size: {0}, num_heads: {1}, num_key_value_heads: {2}, intermediate_size: {3}, num_layers: {4}"
_SMALL = _SIZE.format(512, 8, 4, 2048, 8)
_LARGE = _SIZE.format(768, 12, 6, 3072, 10)


def _model(size: str, family: str, tower: str = "") -> str:
    return f"model.source={{type: tiny, family: {family}, {size}{tower}}}"


_TOWER = ", vision_depth: 6, vision_hidden_size: 256"


def _lengths(response: int, sequences: int) -> tuple[str, str]:
    """Responses of `response` tokens, and micro-batches that whole groups of them fill to more than nine tenths."""
    update = "actor.micro_batch_size_per_device_for_update"
    return f"rollout.max_response_length={response}", f"{update}={sequences}"


CONFIGURATIONS = {
    "text, 1 M": ["model.source={type: tiny, family: qwen2_5}", *_lengths(12, 8)],
    "text, 30 M": [_model(_SMALL, "qwen2_5"), *_lengths(128, 10)],
    "text, 90 M": [_model(_LARGE, "qwen2_5"), *_lengths(64, 8)],
    "text, 90 M, LoRA": [_model(_LARGE, "qwen2_5"), *_lengths(64, 8), "model.lora={rank: 16}"],
    "text, 90 M, KL, bfloat16": [
        _model(_LARGE, "qwen2_5"),
        *_lengths(64, 8),
        "model.dtype=bfloat16",
        "algorithm.kl={coef: 0.01, use_kl_loss: false}",
    ],
    "images, 40 M": [_model(_SMALL, "qwen2_5_vl", _TOWER), *_lengths(128, 10)],
    "images, 40 M, recomputed": [
        _model(_SMALL, "qwen2_5_vl", _TOWER),
        *_lengths(128, 10),
        "model.gradient_checkpointing=true",
    ],
    "text, 30 M, long responses": [_model(_SMALL, "qwen2_5"), *_lengths(256, 8)],
    "text, 30 M, long responses, recomputed": [
        _model(_SMALL, "qwen2_5"),
        *_lengths(256, 8),
        "model.gradient_checkpointing=true",
    ],
}
WHOLE_RUNS = {
    "quickstart": ["data.train.size=256", "data.validation.size=64", "trainer.max_steps=4"],
    "text, 30 M": [
        _model(_SMALL, "qwen2_5"),
        *_lengths(128, 10),
        "cold_start=null",
        "data.max_prompt_length=48",
        "data.rollout_batch_size=16",
        "rollout.n=4",
        "rollout.max_num_seqs=32",
        "trainer.max_steps=3",
        "actor.optim.lr_warmup_steps=0",
    ],
}
"""[name] -> what is not as in the quickstart, besides the rows of text."""

_COMMON = (
    "cold_start=null",
    "data.max_prompt_length=48",
    f"rollout.n={RESPONSES}",
    "rollout.max_num_seqs=32",
    "trainer.async_save=false",
)


class _MallocInfo(ctypes.Structure):
    """glibc's `struct mallinfo2` (man 3 mallinfo)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


class MemoryInUse:
    """Looks every few milliseconds at the resident memory without the freed blocks that malloc keeps."""

    def __init__(self) -> None:
        self.most_gib = 0.0
        self._ended = threading.Event()
        self._mallinfo2 = ctypes.CDLL("libc.so.6").mallinfo2
        self._mallinfo2.restype = _MallocInfo
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "MemoryInUse":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(WATCH_SECONDS):
            resident = psutil.Process().memory_info().rss
            self.most_gib = max(self.most_gib, (resident - self._mallinfo2().fordblks) / GIB)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=CONFIGURATIONS, help="measure one configuration in this process")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if arguments.only:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measured(configured(arguments.only, Path(folder)), Path(folder))))
        return
    facts = machine_facts("benchmarks.memory", sys.argv[1:]) | {"versions": environment_facts()}
    results = []
    for name in CONFIGURATIONS:
        results.append({"configuration": name, **in_a_process_of_its_own(name)})
        print(json.dumps(results[-1]), flush=True)
    runs = []
    for name in WHOLE_RUNS:
        runs.append(measured_run(name))
        print(json.dumps(runs[-1]), flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps(facts | {"results": results, "whole_runs": runs}, indent=1) + "\n")


def measured_run(name: str) -> dict[str, Any]:
    """The highest peaks that the steps of a run record, and its forecast."""
    overrides = WHOLE_RUNS[name]
    with tempfile.TemporaryDirectory() as folder:
        rows = rows_of_text(Path(folder), 64) if name.startswith("text") else []
        changed = [word for override in (*overrides, *rows) for word in ("--set", override)]
        command = [sys.executable, "-m", "flows.cli", "run", str(QUICKSTART), "--runs-dir", f"{folder}/runs", *changed]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        (run,) = (RunDirectory(file.parent) for file in Path(folder).glob("runs/*/timings.jsonl"))
        found = measured_peaks(run, on_gpu=False)
    return {
        "run": name,
        "overrides": overrides,
        "forecast": {phase: round(gib, 3) for phase, gib in forecast_of_run(overrides).items()},
        "measured": {phase: round(gib, 3) for phase, gib in found.items()},
    }


def forecast_of_run(overrides: Sequence[str]) -> dict[str, float]:
    """[phase] -> GiB of a run of the quickstart with these overrides."""
    config = load_config(QUICKSTART, overrides)
    sizes = model_sizes(config.model.source)
    assert sizes is not None, "a tiny model can be built"
    forecast = memory_forecast(resolve_auto(config, sizes, None).config, sizes)
    return {phase: forecast.phase_gib(phase) for phase in get_args(Phase)}


def configured(name: str, folder: Path) -> RunConfig:
    """A configuration: the quickstart's rows, or rows of text in `folder`, with its own settings."""
    is_text = name.startswith("text")
    rows = rows_of_text(folder, PROMPTS) if is_text else [f"data.train.size={PROMPTS}", "data.validation.size=1"]
    return load_config(QUICKSTART, [*rows, *_COMMON, *CONFIGURATIONS[name]])


def rows_of_text(folder: Path, count: int) -> list[str]:
    """Overrides that name files with so many rows of text, and with one that is never trained on."""
    texts = [{"problem": f"What is {row} and {row * row}?", "answer": row} for row in range(count)]
    splits = {"train": texts, "validation": [{"problem": "What is one?", "answer": 1}]}
    for split, rows in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [f"data.{split}={{type: local, path: {folder / split}.jsonl}}" for split in splits]


def in_a_process_of_its_own(name: str) -> dict[str, Any]:
    """What `measured` finds."""
    command = [sys.executable, "-m", "benchmarks.memory", "--only", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return found


def measured(config: RunConfig, folder: Path) -> dict[str, Any]:
    """The highest peaks of all rounds in GiB, and the forecast for this configuration."""
    run = prepare(config, folder / "run")
    folders = WorkerFolders(
        model=run.initial_model, base=run.initial_model, data=run.data, images_per_prompt=1, videos_per_prompt=0
    )
    worker = LocalWorker(Opening(config=config, folders=folders, total_optimizer_steps=100))
    if config.algorithm.kl is not None:
        worker.load("reference", run.initial_model)
    peaks: dict[str, float] = {}
    with MemoryInUse() as in_use:
        for number in range(ROUNDS):
            one_round(worker, config, run, folder / f"state-{number}")
            for name, peak in worker.usage().together.items():
                peaks[name] = max(peak, peaks.get(name, 0.0))
    worker.close()
    sizes = read_sizes(run.initial_model / "config.json")
    assert sizes is not None, "torch is loaded, so the model is built in this process"
    forecast = memory_forecast(config, sizes, response=config.rollout.max_response_length)
    libraries = sum(row.gib for row in forecast.rows if row.name == RUN_LIBRARIES)
    expected = {phase: forecast.phase_gib(phase) - libraries for phase in get_args(Phase)}
    found = {phase: peaks[f"{phase}_peak_gib"] for phase in expected}
    return {
        "parameters": sizes.parameters,
        "forecast": {phase: round(gib, 3) for phase, gib in expected.items()},
        "measured": {phase: round(gib, 3) for phase, gib in found.items()},
        "ratio": {phase: round(expected[phase] / found[phase], 3) for phase in expected},
        "in_use": round(in_use.most_gib, 3),
        "rows": {row.name: round(row.gib, 4) for row in forecast.rows},
    }


def one_round(worker: LocalWorker, config: RunConfig, run: RunDirectory, folder: Path) -> None:
    """Generate, compute the reference's log-probs, update, save."""
    groups = longest_groups(run, config.rollout.max_response_length)
    worker.wake()
    for _ in worker.generate(requests_of(groups), sampling_of(config)):
        pass
    worker.sleep()
    if config.algorithm.kl is not None:
        worker.compute("reference_log_probs", [groups_of(groups)])
    batch = OptimizerBatch.of(groups, longest_response=config.rollout.max_response_length)
    kl_coef = None if config.algorithm.kl is None else config.algorithm.kl.coef
    worker.update(UpdateBatch(policy=[batch], kl_coef=kl_coef, check_agreement=False))
    folder.mkdir()
    worker.take_snapshot(model_only=False, probe=groups_of(groups)[:1], copy=False)
    worker.write_snapshot(folder)


def requests_of(groups: Sequence[TrainGroup]) -> list[GenerationRequest]:
    return [
        GenerationRequest(prompt=group.prompt, sample_index=index, seed=index)
        for group in groups
        for index in range(RESPONSES)
    ]


def sampling_of(config: RunConfig) -> Sampling:
    return Sampling(temperature=1.0, max_tokens=config.rollout.max_response_length)


def longest_groups(run: RunDirectory, longest: int) -> list[TrainGroup]:
    """Every prompt with made-up responses of the greatest length, so that each micro-batch is full."""
    dataset, generator = PreparedDataset.open(run.data, "train"), np.random.default_rng(0)

    def group(prompt: Prompt) -> TrainGroup:
        made = make_train_group(prompt.uid, lengths=(longest,) * RESPONSES)
        samples = []
        for sample in made.samples:
            ids = generator.integers(0, PLAIN_TOKENS, longest).astype(np.int32)
            advantages = generator.normal(size=longest).astype(np.float32)
            rollout = replace(sample.rollout, response_ids=ids)
            samples.append(replace(sample, rollout=rollout, advantages=advantages))
        return TrainGroup(prompt=prompt, samples=samples)

    return [group(dataset[number]) for number in range(PROMPTS)]


if __name__ == "__main__":
    main()
