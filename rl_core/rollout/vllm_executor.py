"""How vLLM finds the other ranks of a generator."""

from typing import TYPE_CHECKING

import torch

from rl_core.distributed.ranks import GeneratorRanks

if TYPE_CHECKING:
    from vllm.v1.executor.abstract import Executor


def executor_of(ranks: GeneratorRanks) -> "type[Executor]":
    """The executor of an engine that these ranks hold together, each in its own process. vLLM's own for such processes
    ("external_launcher") reads their places from torchrun's environment variables. Here they are known."""
    from vllm.v1.executor.uniproc_executor import ExecutorWithExternalLauncher

    class RanksExecutor(ExecutorWithExternalLauncher):  # type: ignore[misc]  # vLLM's classes have no types
        """An engine's part on one rank."""

        def _distributed_args(self) -> tuple[str, int, int]:
            """A name, the number of the rank, and the number of its device. On a CPU vLLM gives the name to memory over
            which ranks add without yielding their cores. If their names differ, vLLM leaves this to gloo: as fast where
            ranks share cores with other processes, and nothing is left when they are killed."""
            device = torch.cuda.current_device() if torch.cuda.is_available() else 0
            return f"{ranks.place.meeting}-{ranks.place.rank}", ranks.place.rank, device

    return RanksExecutor


def take_name_off_shared_memory() -> None:
    """Unlink the memory in which vLLM's ranks would hand each other objects. All of them have opened it by the end of
    the start; without a name it is gone with the last of them, also when they are killed."""
    from vllm.distributed.parallel_state import get_tp_group

    queue = get_tp_group().mq_broadcaster
    if queue is not None and queue.buffer.is_creator:
        queue.buffer.shared_memory.unlink()
        queue.buffer.is_creator = False  # who would unlink it at the end
