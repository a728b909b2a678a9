"""What both sides of the comparison share: their command line, their clock and the file that they leave."""

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

CONFIG = Path("configs/quickstart.yaml")
SAMPLES_PER_STEP = 512  # 64 prompts x 8 responses, as the quickstart configures


@dataclass(frozen=True, kw_only=True)
class SideResult:
    """One run of one side.

    Attributes:
        side: "sightline" or "trl".
        seed: Of the prompts' order and of the sampling.
        step_ends: Clock at the end of each training step, seconds; the first entry is the start of step 1.
        cpu_seconds: Processor time of the process at the same moments.
        rewards: Mean reward of each step's samples.
        load_averages: The machine's one-minute load at the same moments.
        packages: Versions of what ran.
        phases: Seconds by phase of each step; empty for TRL.
        spans: [step] -> [worker] -> what it did when (timings.jsonl); empty for TRL.
        timings: The lines of timings.jsonl; empty for TRL.
        metrics: The lines of metrics.jsonl; empty for TRL.
    """

    side: str
    seed: int
    step_ends: Sequence[float]
    cpu_seconds: Sequence[float]
    rewards: Sequence[float]
    load_averages: Sequence[float]
    packages: Mapping[str, str]
    phases: Sequence[Mapping[str, float]] = ()
    spans: Sequence[Sequence[Sequence[tuple[str, float, float]]]] = ()
    timings: Sequence[Mapping[str, Any]] = ()
    metrics: Sequence[Mapping[str, Any]] = ()

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "SideResult":
        return cls(**json.loads(path.read_text()))

    def seconds(self, first: int, last: int) -> float:
        """Wall-clock seconds from the start of step `first` to the end of step `last`, both counted from 1."""
        return self.step_ends[last] - self.step_ends[first - 1]

    def samples_per_second(self, first: int, last: int) -> float:
        return SAMPLES_PER_STEP * (last - first + 1) / self.seconds(first, last)


class StepClock:
    """Reads the clocks at the start and after every step."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []
        self.load: list[float] = []

    def tick(self) -> None:
        self.wall.append(time.perf_counter())
        self.cpu.append(time.process_time())
        self.load.append(os.getloadavg()[0])


def package_versions(*names: str) -> dict[str, str]:
    return {name: version(name) for name in names}


def parse_side() -> argparse.Namespace:
    """The command line of a side: --work, --seed, --steps, --threads, --out, the config that both sides follow with
    changes of it, Sightline's --workers and --sharding, TRL's --micro-batch in samples, and its --generation."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--sharding", default="full")
    parser.add_argument("--micro-batch", type=int)
    parser.add_argument("--generation", choices=["padded", "continuous", "vllm"], default="padded")
    parser.add_argument("--set", dest="settings", nargs="*", default=[], metavar="KEY=VALUE")
    return parser.parse_args()
