"""Sightline's side once more, with the time of the parts of a step: `python -m ... --work ... --out ...`.

Writes what `sightline_side` writes, and beside it OUT.parts.json: part -> [start, seconds] of each call.
"""

import json
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from benchmarks.speed import sightline_side
from benchmarks.speed.side import parse_side
from rl_core.rollout.vllm_process import prepare_process

Calls = dict[str, list[tuple[float, float]]]


def measure(owner: type | ModuleType, method: str, calls: list[tuple[float, float]]) -> None:
    """Let a method of a class, or a function of a module, note when it is called and how long it takes."""
    inner: Callable[..., Any] = getattr(owner, method)

    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return inner(*args, **kwargs)
        finally:
            calls.append((start, time.perf_counter() - start))

    setattr(owner, method, timed)


def measure_parts() -> Calls:
    """Measure every part from now on. No part contains another one."""
    prepare_process()
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    from rl_core.rollout.cpu.scheduler import DecodeScheduler
    from rl_core.rollout.vllm_engine import VllmEngine
    from rl_core.rollout.vllm_requests import RunningRequests
    from rl_core.training.policy_update import PolicyUpdate

    methods = {
        "generate: language model": (CPUModelRunner, "_model_forward"),
        "generate: vision tower": (CPUModelRunner, "_execute_mm_encoder"),
        "generate: choice of the requests of a step": (DecodeScheduler, "schedule"),
        "generate: results of a step": (DecodeScheduler, "update_from_output"),
        "generate: state of the requests": (CPUModelRunner, "_update_states"),
        "generate: input tensors": (CPUModelRunner, "_prepare_inputs"),
        "generate: sampling": (CPUModelRunner, "sample_tokens"),
        "generate: new requests": (RunningRequests, "add"),
        "generate: texts of the responses": (VllmEngine, "_rollout"),
        "forward_backward: packing and forward pass": (PolicyUpdate, "_forward"),
        "forward_backward: backward pass": (torch.autograd, "backward"),
    }
    calls: Calls = {part: [] for part in methods}
    for part, (owner, method) in methods.items():
        measure(owner, method, calls[part])
    return calls


if __name__ == "__main__":
    found = measure_parts()
    sightline_side.main()
    parse_side().out.with_suffix(".parts.json").write_text(json.dumps(found))
