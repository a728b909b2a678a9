"""Weights that are sent over a link arrive as they were. Sender and receivers are threads here."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_core.distributed.collectives import buckets
from rl_core.workers.weight_link import LinkPlace, WeightLink
from tests.servers import free_port

WEIGHTS = [
    ("matrix", torch.randn(3, 5)),
    ("transposed", torch.randn(4, 6).T),
    ("half", torch.randn(7).bfloat16()),
    ("number", torch.tensor(3)),
    ("large", torch.randn(100, 100)),
    ("empty", torch.empty(0, 4)),
]


@pytest.fixture
def meeting(monkeypatch) -> str:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    return f"tcp://127.0.0.1:{free_port()}"


def test_all_receivers_get_every_weight_as_often_as_it_is_sent(meeting):
    rounds = 2

    def take_part(number):
        place = LinkPlace(number=number, size=3, meeting=meeting, seconds=30.0)
        link = WeightLink(place, torch.device("cpu"))
        if number == 0:
            for _ in range(rounds):
                link.send(WEIGHTS)
            return []
        return [list(link.receive()) for _ in range(rounds)]

    with ThreadPoolExecutor(3) as threads:
        _, *received = threads.map(take_part, range(3))
    for found in [weights for of_receiver in received for weights in of_receiver]:
        assert [name for name, _ in found] == [name for name, _ in WEIGHTS]
        for (_, weight), (_, sent) in zip(found, WEIGHTS, strict=True):
            assert weight.dtype == sent.dtype and torch.equal(weight, sent)


@given(sizes=st.lists(st.integers(0, 30), max_size=20), most=st.integers(1, 40))
def test_buckets_keep_the_order_and_are_as_full_as_they_may_be(sizes, most):
    found = list(buckets(sizes, size_of=int, most=most))
    assert [size for bucket in found for size in bucket] == sizes
    assert all(len(bucket) > 0 and (sum(bucket) <= most or len(bucket) == 1) for bucket in found)
    for bucket, after in pairwise(found):
        assert sum(bucket) + after[0] > most, "the next one would have fitted"
