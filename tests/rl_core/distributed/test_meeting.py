"""Processes meet over a store that strangers on other machines do not reach."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from urllib.parse import urlsplit

import psutil
import pytest

from rl_core.distributed.interface import free_meeting
from rl_core.distributed.ranks import meeting_store


def test_ranks_that_meet_share_a_store_that_listens_at_the_meeting_address_alone():
    meeting = free_meeting("127.0.0.1")
    with ThreadPoolExecutor(1) as thread:  # each waits for the other
        joined = thread.submit(meeting_store, meeting, number=1, size=2)
        held = meeting_store(meeting, number=0, size=2)
    held.set("said", "here")
    assert joined.result().get("said") == b"here"
    found = psutil.Process().net_connections("tcp")
    port = urlsplit(meeting).port
    assert [c.laddr.ip for c in found if c.status == psutil.CONN_LISTEN and c.laddr.port == port] == ["127.0.0.1"]


def test_a_rank_that_waits_in_vain_raises_an_error():
    with pytest.raises(RuntimeError, match=r"[Tt]imed out"):
        meeting_store(free_meeting("127.0.0.1"), number=0, size=2, timeout=timedelta(seconds=1))
