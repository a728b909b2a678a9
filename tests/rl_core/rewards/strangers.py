"""A user's reward file that misbehaves as its samples say."""

import ctypes
import os
import re
import sys
import time
from pathlib import Path

from rl_core.rewards.sample import RewardSample


def judge(sample: RewardSample, weight: float = 1.0):
    return {"overall": weight, **ACTS[sample.response](sample)}


def nap(sample: RewardSample) -> float:
    time.sleep(float(sample.response))
    return 1.0


def meet(sample: RewardSample, folder: str, people: int) -> float:
    """Ends when so many processes have been in it at one time."""
    time.sleep(0.2)  # a slow call, also for who comes last
    Path(folder, str(os.getpid())).touch()
    while len(list(Path(folder).iterdir())) < people:
        time.sleep(0.01)
    return 1.0


def _raise(sample: RewardSample) -> dict[str, float]:
    raise KeyError("the reason")


def _hang(sample: RewardSample) -> dict[str, float]:
    while True:
        time.sleep(60)


def _runaway_expression(sample: RewardSample) -> dict[str, float]:
    re.fullmatch(r"(a+)+b", "a" * 60)  # holds the interpreter lock for years
    return {}


def _segfault(sample: RewardSample) -> dict[str, float]:
    ctypes.string_at(0)
    return {}


def _take_memory(sample: RewardSample) -> dict[str, float]:
    hoard = []
    while True:
        hoard.append(bytes(64 * 2**20))


def _modules(sample: RewardSample) -> dict[str, float]:
    loaded = [name for name in ("torch", "vllm", "transformers", "numpy", "pydantic") if sys.modules.get(name)]
    return dict.fromkeys(loaded, 1.0)


ACTS = {
    "good": lambda sample: {"length": sample.response_length},
    "raise": _raise,
    "hang": _hang,
    "runaway": _runaway_expression,
    "segfault": _segfault,
    "hungry": _take_memory,
    "leave": lambda sample: os._exit(3),
    "nan": lambda sample: {"accuracy": float("nan")},
    "text": lambda sample: {"accuracy": "high"},
    "none": lambda sample: {"overall": None},
    "modules": _modules,
    "pid": lambda sample: {"pid": os.getpid(), "parent": os.getppid()},
}
