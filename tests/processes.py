"""Which processes of a test still run, asked while they end."""

from collections.abc import Collection

import psutil


def living(pids: Collection[int]) -> list[int]:
    """Those that run: neither gone nor ended and waiting for their parent to ask (a zombie).

    A process that ends between being listed and being looked at is gone; ``psutil.Process(pid)`` after
    ``psutil.pid_exists(pid)`` raises then.
    """
    found = {process.pid: process.info["status"] for process in psutil.process_iter(["status"])}
    return [pid for pid in pids if found.get(pid, psutil.STATUS_ZOMBIE) != psutil.STATUS_ZOMBIE]
