"""Reward samples for tests."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import psutil

from rl_core.config.reward import RewardConfig
from rl_core.rewards.messages import RewardSpec, Style
from rl_core.rewards.order import RewardOrder
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.sample import RewardSample
from tests.processes import answers

PLACE = re.compile(r" \(\S+\.py line \d+\)$")
"""What the reason of a failure ends with that came from a line of a user file."""


def without_place(reason: str | None) -> str | None:
    return None if reason is None else PLACE.sub("", reason)


def supervisors() -> set[psutil.Process]:
    """The supervisors of the scoring processes of this process's pools."""
    found = answers(psutil.Process(), lambda one: (one, one.ppid(), " ".join(one.cmdline())))
    return {
        one for one, parent, command in found if parent == os.getpid() and "rl_core.isolation.supervisor" in command
    }


def own(folder: Path, text: str) -> str:
    """The function `score` of a user file with this text."""
    path = folder / "own.py"
    path.write_text(text)
    return f"{path}:score"


def pool_of(file: Path, function: str, **settings) -> RewardPool:
    """A function of a file in two processes, with a second for a call."""
    settings = {"workers": 2, "timeout_seconds": 1.0, "memory_limit_gib": 1.0} | settings
    return RewardPool(RewardConfig(function=f"{file}:{function}", **settings))


def spec_of(name: str = "x", *, style: Style = "sample", is_async: bool = False) -> RewardSpec:
    return RewardSpec(name=name, source="s", function="f", kwargs={}, has_parser=False, style=style, is_async=is_async)


def order_of(specs: Sequence[RewardSpec], **seconds: float) -> RewardOrder:
    """With limits of a second, or of so many."""
    limits = dict.fromkeys(("timeout_seconds", "batch_timeout_seconds", "load_timeout_seconds"), 1.0)
    return RewardOrder(specs=[*specs], memory_limit_bytes=2**30, **(limits | seconds))


def make_sample(
    response: str, ground_truth: str = "3", *, length: int = 5, source: str = "test", uid: str = "p0", index: int = 0
) -> RewardSample:
    return RewardSample(
        response=response,
        ground_truth=ground_truth,
        response_length=length,
        prompt="<|im_start|>user\nHow many?",
        question="How many?",
        data_source=source,
        prompt_uid=uid,
        sample_index=index,
    )
