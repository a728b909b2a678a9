"""Prepares the process for vLLM, and undoes changes that vLLM makes to it."""

import gc
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rl_core.environment import disable_telemetry

_VARIABLES = {
    # The engine runs in this process: weights are passed by reference, and a step is a function call.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Its messages go to the application's logging instead of a handler of its own.
    "VLLM_CONFIGURE_LOGGING": "0",
    # Otherwise the CPU kernel splits the attention of a long sequence into a number of sums that depends on the rest of
    # the batch, and with it a rollout's log-probs would depend on other requests.
    "VLLM_CPU_ATTN_SPLIT_KV": "0",
    # Otherwise Triton's kernels, which float32 attention uses on a GPU, round what they multiply to TF32 (11 bits).
    "TRITON_F32_DEFAULT": "ieee",
    # Ranks that hold an engine together add over NCCL. vLLM's other ways need a process that sees the devices of all
    # ranks; FlashInfer's adds in no fixed order, and compiles at its first use.
    "VLLM_ALLREDUCE_USE_FLASHINFER": "0",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
}

# torch's process groups, which vLLM creates even for one device, listen at the address of the machine's name without
# any authentication. To spread an engine over machines, set these variables to the network between them.
_LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "VLLM_HOST_IP": "127.0.0.1"}


def prepare_process() -> None:
    """Set the environment variables that vLLM reads. Must run before the first import of vllm in the process."""
    disable_telemetry()
    os.environ.update(_VARIABLES)
    for name, value in _LOOPBACK.items():
        os.environ.setdefault(name, value)
    logger = logging.getLogger("vllm")
    if logger.level == logging.NOTSET:  # a level that was set explicitly is kept
        logger.setLevel(logging.ERROR)


@contextmanager
def contained_start() -> Iterator[None]:
    """Undo, at the end of a `with` block around the engine's start, the changes that vLLM makes for worker processes.

    On a GPU it sets torch to one thread; on a CPU it replaces `torch.set_num_threads` by a function that only warns,
    and puts libraries into LD_PRELOAD, which every child process would inherit. The trainer shares the process and
    needs all three as they were. Warnings about deprecated names of torch are suppressed.

    Collections of garbage skip what exists before the start, as vLLM lets them skip everything after it: its start has
    five of them.
    """
    gc.collect()
    gc.freeze()
    set_num_threads, threads = torch.set_num_threads, torch.get_num_threads()
    preload = os.environ.get("LD_PRELOAD")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        torch.set_num_threads = set_num_threads
        torch.set_num_threads(threads)
        if preload is None:
            os.environ.pop("LD_PRELOAD", None)
        else:
            os.environ["LD_PRELOAD"] = preload
