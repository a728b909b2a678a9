"""Further requests are given once and in order, to the generation that they are for."""

from hypothesis import given
from hypothesis import strategies as st

from rl_core.types import GenerationRequest
from rl_core.workers.inbox import Inbox
from tests.rl_core.builders import make_prompt


def request(index: int) -> GenerationRequest:
    return GenerationRequest(prompt=make_prompt("p"), sample_index=index, seed=index)


@given(order=st.permutations(range(5)), begins_after=st.integers(0, 5))
def test_messages_are_given_in_their_order_in_whichever_they_come(order, begins_after):
    """Those of a generation that has not begun here yet, too: its other ranks may be further."""
    inbox, found, ends = Inbox(), [], 0
    inbox.begin(3)
    for came, message in enumerate(order):
        if came == begins_after:
            inbox.begin(4)
        inbox.put(4, message, None if message == 4 else [request(2 * message), request(2 * message + 1)])
        inbox.put(3, message, [request(99)])
        if came >= begins_after:
            further = inbox.further()
            ends += further is None
            found += further or []
    if begins_after == 5:
        inbox.begin(4)
    while (further := inbox.further()) is not None:
        assert further, "all messages are there"
        found += further
    assert [one.sample_index for one in found] == [*range(8)]
    assert ends <= 1
