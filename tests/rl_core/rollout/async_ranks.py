"""What two ranks that hold a vLLM together do in tests/rl_core/rollout/test_async_ranks.py."""

import os
import time
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

from rl_core.device import CPU_ENGINE
from rl_core.distributed.place import RankPlace
from rl_core.distributed.ranks import Ranks
from rl_core.rollout import vllm_engine
from rl_core.rollout.vllm_process import prepare_process
from tests.rl_core.rollout.engines import Running, load_tiny_policy, make_requests, start_vllm, training_sampling


def generate_asynchronously(place: RankPlace, folder: Path) -> dict[str, Any]:
    """Generate with asynchronous scheduling: everything, a part that is left early, and everything again."""
    prepare_process()
    os.environ[CPU_ENGINE] = "0"  # whose scheduler does everything in turn
    arguments = vllm_engine.engine_arguments
    vllm_engine.engine_arguments = lambda *given, **named: asynchronous(arguments(*given, **named))
    ranks = Ranks.join(place, "full", ranks_per_generator=2)
    policy = load_tiny_policy("llama", folder)
    engine = start_vllm(policy, ranks=ranks.generator)
    core: Any = engine._engine.engine_core.engine_core
    steps = recorded_steps(core)
    running = Running(policy, engine)
    running.sync()
    requests = make_requests(policy.prompts(), 6)
    if not ranks.generator.is_first:
        slow_down(core)
    whole = running.generate(requests, training_sampling())
    left = engine.generate(requests, training_sampling())
    taken = [rollout.key for rollout in islice(left, 4)]
    left.close()
    again = running.generate(requests, training_sampling())
    engine.close()
    scheduler = type(core.scheduler).__name__
    return {"scheduler": scheduler, "steps": steps, "whole": whole, "taken": taken, "again": again}


def asynchronous(arguments: Any) -> Any:
    """Arguments of vLLM's own classes with asynchronous scheduling, which it switches off on a CPU."""
    from vllm import EngineArgs

    class AsynchronousArgs(EngineArgs):
        def create_engine_config(self, *args: Any, **kwargs: Any) -> Any:
            config = super().create_engine_config(*args, **kwargs)
            config.scheduler_config.async_scheduling = True
            return config

    return AsynchronousArgs(**{field.name: getattr(arguments, field.name) for field in fields(arguments)})


def recorded_steps(core: Any) -> list[list[tuple[int, int]]]:
    """A list that gets the requests that the scheduler puts into a step, numbered in the order in which they come, and
    how many tokens of each."""
    steps: list[list[tuple[int, int]]] = []
    numbers: dict[str, int] = {}
    schedule = core.scheduler.schedule

    def recording(*args: Any) -> Any:
        output = schedule(*args)
        tokens = output.num_scheduled_tokens.items()
        steps.append([(numbers.setdefault(request, len(numbers)), count) for request, count in tokens])
        return output

    core.scheduler.schedule = recording
    return steps


def slow_down(core: Any) -> None:
    """Let some results come late."""
    update, numbers = core.scheduler.update_from_output, iter(range(10**6))

    def late(*args: Any) -> Any:
        if next(numbers) % 3 == 1:
            time.sleep(0.01)
        return update(*args)

    core.scheduler.update_from_output = late
