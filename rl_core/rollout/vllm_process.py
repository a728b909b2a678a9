"""What vLLM needs of the process it lives in, and what it must not leave behind there."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rl_core.environment import disable_telemetry

_VARIABLES = {
    # The engine lives in this process: weights are handed over by reference, and a step is a function call.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Its messages pass through the application's logging instead of a handler of its own.
    "VLLM_CONFIGURE_LOGGING": "0",
    # Otherwise the CPU kernel splits the attention of a long sequence into as many sums as the rest of the batch leaves
    # threads for, and a rollout's log-probs depend on what else is generated.
    "VLLM_CPU_ATTN_SPLIT_KV": "0",
}

# torch's process groups, which vLLM makes even for one device, listen at the address of the machine's name, and ask
# nobody who they are. A person who spreads an engine over machines names the network between them.
_LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "VLLM_HOST_IP": "127.0.0.1"}


def prepare_process() -> None:
    """Set what vLLM reads from the environment. Must run before the first import of vllm in the process."""
    disable_telemetry()
    os.environ.update(_VARIABLES)
    for name, value in _LOOPBACK.items():
        os.environ.setdefault(name, value)
    logger = logging.getLogger("vllm")
    if logger.level == logging.NOTSET:  # a level that somebody chose stays
        logger.setLevel(logging.ERROR)


@contextmanager
def contained_start() -> Iterator[None]:
    """Undo, at the end of a `with` around the engine's start, what vLLM changes for worker processes of its own.

    On a GPU it sets torch to one thread; on a CPU it replaces `torch.set_num_threads` by a function that only warns,
    and puts libraries into LD_PRELOAD, which every child would inherit. The trainer shares the process and needs all
    three as they were. Its warnings about deprecated names of torch, which it only lists, are left out.
    """
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
