"""Where processes meet: a store that the first of them holds, and that listens at the meeting address alone."""

import socket
from datetime import timedelta
from urllib.parse import urlsplit

from torch._C._distributed_c10d import TCPStore
from torch.distributed.constants import default_pg_timeout


def meeting_store(meeting: str, *, number: int, size: int, timeout: timedelta = default_pg_timeout) -> TCPStore:
    """The store over which processes find each other. It asks nobody who connects, and torch by itself would have it
    listen on every interface.

    Args:
        meeting: An address of the first one's machine (`tcp://host:port`).
        number: The number of this process, of `size`; the first one, 0, holds the store.
        timeout: How long each waits for the others; then it raises RuntimeError.
    """
    address = urlsplit(meeting)
    assert address.hostname is not None and address.port is not None, "an address as `free_meeting` gives it"
    if number > 0:
        return TCPStore(address.hostname, address.port, size, is_master=False, timeout=timeout)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.hostname, address.port))
        listener.listen()
        return TCPStore(
            address.hostname, address.port, size, is_master=True, timeout=timeout, master_listen_fd=listener.detach()
        )
