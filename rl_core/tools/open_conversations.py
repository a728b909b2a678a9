"""Conversations of which each goes on as soon as it can."""

import time
from collections.abc import Callable, Iterator, Sequence

from rl_core.progress import TALLY
from rl_core.tools.conversation import Conversation
from rl_core.tools.toolbox import Answer
from rl_core.types import GenerationRequest, Rollout, RolloutKey


class OpenConversations:
    """Where each of some conversations is: a turn of it is being generated, or its calls are being answered, or it has
    ended. `answered` are all answers so far."""

    def __init__(
        self, conversations: Sequence[Conversation], answer: Callable[[Conversation], Sequence[Answer]]
    ) -> None:
        """The first turn of each is being generated. `answer` waits for what a turn has asked for."""
        self._generating = {one.key: one for one in conversations}
        self._answering: list[Conversation] = []
        self._answer = answer
        self._idle_since: float | None = None
        self.answered: list[Answer] = []

    def generated(self, key: RolloutKey) -> Conversation:
        """The conversation of which the turn with this key is there, whose calls are answered from now on."""
        conversation = self._generating.pop(key)
        self._answering.append(conversation)
        return conversation

    def further(self) -> list[GenerationRequest] | None:
        """Requests of the next turns of those that are answered by now; None when all conversations have ended."""
        for one in self._answering:
            while one.begun is not None and one.begun.is_ready:
                self.answered += self._answer(one)
        going_on = [one for one in self._answering if one.begun is None and one.end is None]
        self._answering = [one for one in self._answering if one.begun is not None or one.end is not None]
        self._count_waiting()
        self._generating |= {one.key: one for one in going_on}
        TALLY.responses -= len(going_on)  # what was counted is a turn
        is_over = not self._generating and all(one.begun is None for one in self._answering)
        return None if is_over else [one.asked for one in going_on]

    def ended(self) -> Iterator[Rollout]:
        """The responses of those that have ended since the last call."""
        ended = [one for one in self._answering if one.begun is None]
        self._answering = [one for one in self._answering if one.begun is not None]
        return (one.response() for one in ended)

    def _count_waiting(self) -> None:
        """Count the time in which nothing was generated, because every conversation waited for tools."""
        now = time.perf_counter()
        if self._idle_since is not None:
            TALLY.waited += now - self._idle_since
        self._idle_since = None if self._generating else now
