"""What a checkpoint costs compared with PyTorch's own ways to save: `python -m benchmarks.checkpoints`.

A model of random weights takes a step of AdamW, and its state is saved again and again, in turn: with torch.save, with
torch.distributed.checkpoint, with the latter and a hash of each file, and as Sightline saves it, in the foreground and
in the background. Every way flushes its files to the disk. Writes a file with `--output`.
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from benchmarks.speed.report import machine_facts
from rl_core.checkpoints.host_copy import HostCopies
from rl_core.checkpoints.manifest import CheckpointInfo
from rl_core.checkpoints.store import BackgroundSaver, CheckpointStore
from rl_core.config.training import OptimConfig
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.training.saved_model import ModuleState

WIDTH = 1024

Seconds = dict[str, float]


class Model:
    """Layers with random weights, and an optimizer that has moments."""

    def __init__(self, layers: int) -> None:
        torch.manual_seed(0)
        self.module = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
        self.optimizer = PolicyOptimizer(
            self.module, config=OptimConfig(strategy="adamw"), max_grad_norm=1.0, total_steps=2
        )
        self.module(torch.randn(4, WIDTH)).square().sum().backward()
        self.optimizer.step()
        self.copies = HostCopies()

    def state(self, *, copies: HostCopies | None = None) -> ModuleState:
        """What a checkpoint holds of it."""
        return ModuleState.of(self.module, self.optimizer, trained_only=False, model_only=False, copies=copies)

    def plain(self) -> dict[str, Any]:
        """The same as nested dictionaries of the model's own tensors."""
        state = self.state()
        return {"model": state.weights, "optimizer": state.moments}


def with_torch_save(model: Model, folder: Path) -> Seconds:
    with (folder / "state.pt").open("wb") as file:
        torch.save(model.plain(), file)
        file.flush()
        os.fsync(file.fileno())
    return {}


def with_dcp(model: Model, folder: Path) -> Seconds:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        save(model.plain(), storage_writer=FileSystemWriter(folder / "state"), no_dist=True)
    return {}


def with_dcp_and_hashes(model: Model, folder: Path) -> Seconds:
    with_dcp(model, folder)
    for path in (folder / "state").iterdir():
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")
    return {}


def with_sightline(model: Model, folder: Path) -> Seconds:
    store = CheckpointStore(folder, save_limit=1)
    store.save(model.state().write, info=INFO)
    return {}


def with_sightline_in_background(model: Model, folder: Path) -> Seconds:
    saver = BackgroundSaver(CheckpointStore(folder, save_limit=1), check=lambda: None)
    start = time.perf_counter()
    snapshot = model.state(copies=model.copies)
    saver.begin(snapshot.write, info=INFO)
    blocking = time.perf_counter() - start
    saver.wait()
    return {"blocking_seconds": blocking}


INFO = CheckpointInfo(step=1)
DCP = "torch.distributed.checkpoint"
BACKGROUND = "Sightline, in the background"
WAYS: Mapping[str, Callable[[Model, Path], Seconds]] = {
    "torch.save": with_torch_save,
    DCP: with_dcp,
    f"{DCP}, then hashed": with_dcp_and_hashes,
    "Sightline": with_sightline,
    BACKGROUND: with_sightline_in_background,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--layers", type=int, default=30, help="each has 1024 x 1024 weights, 12 MiB of state")
    parser.add_argument("--folder", type=Path, help="on the disk to measure; else a temporary folder")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    facts = machine_facts("benchmarks.checkpoints", sys.argv[1:]) | {"torch": torch.__version__}
    model = Model(arguments.layers)
    rounds = [
        {name: measured(way, model, arguments.folder) for name, way in WAYS.items()} for _ in range(arguments.rounds)
    ]
    result = facts | summary(rounds, num_bytes=bytes_of(model), hashing=seconds_of_hashing(model))
    print(json.dumps(result, indent=1))
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


def measured(way: Callable[[Model, Path], Seconds], model: Model, parent: Path | None) -> Seconds:
    """Seconds of the clock and of the processor for one save, from an idle disk."""
    os.sync()
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        start, start_of_processor = time.perf_counter(), time.process_time()
        parts = way(model, Path(folder))
        seconds, of_processor = time.perf_counter() - start, time.process_time() - start_of_processor
    return {"seconds": seconds, "processor_seconds": of_processor, **parts}


def summary(rounds: list[dict[str, Seconds]], *, num_bytes: int, hashing: float) -> dict[str, Any]:
    """The median of each figure over the rounds, and ratios to torch.distributed.checkpoint of the same round."""
    ways = {}
    for name in WAYS:
        figures = {figure: median(one[name][figure] for one in rounds) for figure in rounds[0][name]}
        ratios = {
            f"{figure} / {DCP}": median(one[name][figure] / one[DCP]["seconds"] for one in rounds)
            for figure in figures
            if figure != "processor_seconds"
        }
        ways[name] = {key: round(value, 3) for key, value in (figures | ratios).items()} | {
            "megabytes_per_second": round(num_bytes / 1e6 / figures["seconds"])
        }
    share = hashing / median(one["Sightline"]["processor_seconds"] for one in rounds)
    return {
        "rounds": len(rounds),
        "state_megabytes": round(num_bytes / 1e6),
        "ways": ways,
        "hashing_share_of_processor_time": round(share, 3),
    }


def bytes_of(model: Model) -> int:
    return sum(tensor.nbytes for tensor in tensors_of(model))


def seconds_of_hashing(model: Model) -> float:
    """Processor seconds for a hash of all tensors, without reading or writing a file."""
    start = time.process_time()
    for tensor in tensors_of(model):
        hashlib.sha256(tensor.numpy().data)
    return time.process_time() - start


def tensors_of(model: Model) -> list[torch.Tensor]:
    state = model.state()
    moments = (entry for entries in (state.moments or {}).values() for entry in entries.values())
    return [*state.weights.values(), *moments]


if __name__ == "__main__":
    main()
