"""What vLLM uses on a CPU in place of its own code: the modules vllm_cpu_*. Results are equal to the bit; only the time
differs.

vLLM's Python treats one request after the other, and is written for GPUs, whose kernels run meanwhile. On a CPU it
takes half of the time in which a small model generates.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm import EngineArgs


def with_cpu_classes(arguments: "EngineArgs") -> "EngineArgs":
    """Arguments of an engine on a CPU that uses Sightline's classes. Its layers are those of every engine that this
    process starts afterwards."""
    if arguments.enforce_eager:
        import rl_core.rollout.vllm_cpu_layers  # noqa: F401  # registers them
    from rl_core.rollout.vllm_cpu_scheduler import DecodeScheduler
    from rl_core.rollout.vllm_cpu_worker import DecodeWorker

    return replace(
        arguments,
        scheduler_cls=DecodeScheduler,
        worker_cls=f"{DecodeWorker.__module__}.{DecodeWorker.__qualname__}",  # vLLM takes no class here
    )
