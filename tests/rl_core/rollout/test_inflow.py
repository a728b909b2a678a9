"""Requests that come in the middle: every rank that holds a generator takes the same ones at the same time."""

from hypothesis import given
from hypothesis import strategies as st

from rl_core.models.pixels import PixelCache
from rl_core.rollout.inflow import Inflow
from rl_core.types import GenerationRequest, RequestFeed
from tests.rl_core.builders import make_prompt


class NoPixels(PixelCache):
    """Of prompts without images."""

    def __init__(self) -> None:
        pass


def requests(count: int) -> list[GenerationRequest]:
    return [GenerationRequest(prompt=make_prompt("p"), sample_index=index, seed=index) for index in range(count)]


@given(
    first=st.integers(0, 3),
    heard=st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), max_size=8),
    most=st.integers(1, 4),
)
def test_ranks_that_hear_at_other_times_take_the_same(first, heard, most):
    """Each number of a pair is how many messages a rank hears before a step."""
    all_of_them = requests(12)
    coming = [[*all_of_them[first:], None] for _ in range(2)]

    def inflow(rank: int) -> Inflow:
        def further() -> list[GenerationRequest] | None:
            heard_now = [coming[rank].pop(0) for _ in range(min(allowed[rank], len(coming[rank])))]
            if heard_now and heard_now[-1] is None:
                if heard_now[:-1]:
                    coming[rank].insert(0, heard_now.pop())
                else:
                    return None
            return heard_now

        return Inflow(RequestFeed(all_of_them[:first], further), NoPixels())

    allowed = [0, 0]
    ranks = [inflow(rank) for rank in range(2)]
    taken: list[list[GenerationRequest]] = [[], []]
    for step in [*heard, *([[12, 12]] * 20)]:
        allowed[:] = step
        now = [rank.take(most) for rank in ranks]
        assert now[0] == now[1]
        for rank, of_rank in zip(taken, now, strict=True):
            rank += of_rank
        accepted = min(rank.offered() for rank in ranks)
        for rank in ranks:
            rank.accept(accepted)
        assert ranks[0].is_open == ranks[1].is_open
    assert [request.sample_index for request in taken[0]] == [*range(12)]
    assert not ranks[0].is_open


def test_a_list_is_taken_in_order_and_nothing_may_come_after_it():
    inflow = Inflow(requests(5), NoPixels())
    assert [request.sample_index for size in (2, 4) for request in inflow.take(size)] == [0, 1, 2, 3, 4]
    inflow.accept(inflow.offered())
    assert not inflow.is_open
    assert inflow.offered() == 0 and inflow.take(1) == []
