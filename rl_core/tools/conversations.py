"""Conversations: the model's calls are answered, and it goes on.

A round is one list of requests in the order of their keys; the calls of its turns are answered, and the next round
begins. So what is generated does not depend on which turn was finished first. Continuously, each conversation goes on
when its calls are answered, beside others that are being generated: which these are decides how a token is rounded.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from rl_core.config.data import DataConfig
from rl_core.config.tools import ToolsConfig
from rl_core.data.chat import ChatRenderer
from rl_core.data.images import ImageStore
from rl_core.progress import TALLY
from rl_core.tools.conversation import Conversation
from rl_core.tools.isolated_tools import IsolatedTools
from rl_core.tools.messages import mark_of
from rl_core.tools.open_conversations import OpenConversations
from rl_core.tools.toolbox import Answer, Toolbox, tool_schemas
from rl_core.tools.turns import TurnRenderer
from rl_core.types import Generate, GenerateTurns, GenerationRequest, RequestFeed, Rollout, RolloutStream, Sampling

Conversing = Callable[[GenerateTurns, int], Generate]
"""Makes of a function that generates single turns one that generates whole responses, by weights of a version."""


def single_turn(generate: GenerateTurns, version: int) -> Generate:
    """Without tools a response is one turn, whatever the version."""
    return generate


class Conversations:
    """Generates responses of several turns. `chat` renders the prompts of the run; `isolated` and `images` as in
    `Toolbox`. Raises ValueError where the model's chat template cannot carry a conversation."""

    def __init__(
        self,
        tools: ToolsConfig,
        data: DataConfig,
        chat: ChatRenderer,
        *,
        isolated: IsolatedTools | None = None,
        images: ImageStore | None = None,
    ) -> None:
        self._tools = tools
        self._toolbox = Toolbox(tools, data, chat.vision, isolated=isolated, images=images)
        self._renderer = TurnRenderer(chat, tools)
        self._renderer.check()
        self._reader = self._renderer.reader()
        self.remark = self._renderer.remark()
        """What a person should know of the chat template before the run."""
        self._turn_end = self._renderer.turn_end

    def __call__(self, generate: GenerateTurns, version: int) -> Generate:
        """A function that generates whole responses with one that generates single turns by weights of this version."""

        def conversed(requests: Sequence[GenerationRequest], sampling: Sampling) -> RolloutStream:
            answered: list[Answer] = []
            marks: dict[str, str | None] = {}
            if self._toolbox.has_environment:
                began = time.perf_counter()
                requests = self._opened(requests, version, answered, marks)
                TALLY.waited += time.perf_counter() - began
            waiting = [
                Conversation(one, one, self._toolbox.pictures_of(one.prompt), marks.get(one.prompt.uid))
                for one in requests
            ]
            converse = self._continuously if self._tools.schedule == "continuous" else self._in_rounds
            yield from converse(waiting, generate, sampling, answered)

        return conversed

    def _in_rounds(
        self, waiting: list[Conversation], generate: Generate, sampling: Sampling, answered: list[Answer]
    ) -> RolloutStream:
        """The responses, while the answers to calls are added to those of the openings."""
        while waiting:
            by_key = {one.key: one for one in waiting}
            with closing(generate([one.asked for one in waiting], sampling)) as rollouts:
                for rollout in rollouts:
                    conversation = by_key[rollout.key]
                    self._take(conversation, rollout)
                    if conversation.begun is None:
                        yield conversation.response()
            asked, began = [one for one in waiting if one.begun is not None], time.perf_counter()
            for conversation in asked:
                while conversation.begun is not None:
                    answered += self._answer(conversation)
            TALLY.waited += time.perf_counter() - began
            self._toolbox.check_failures(answered)
            waiting = [one for one in asked if one.end is None]
            TALLY.responses -= len(waiting)  # what was counted is a turn
            yield from (one.response() for one in asked if one.end is not None)

    def _continuously(
        self, waiting: list[Conversation], generate: GenerateTurns, sampling: Sampling, answered: list[Answer]
    ) -> RolloutStream:
        """As `_in_rounds`, but each next turn is asked for as soon as the last one is answered."""
        conversations = OpenConversations(waiting, self._answer)
        feed = RequestFeed([one.asked for one in waiting], conversations.further)
        with closing(generate(feed, sampling)) as rollouts:
            for rollout in rollouts:
                self._take(conversations.generated(rollout.key), rollout)
                yield from conversations.ended()
        self._toolbox.check_failures([*answered, *conversations.answered])
        yield from conversations.ended()

    def _opened(
        self,
        requests: Sequence[GenerationRequest],
        version: int,
        answered: list[Answer],
        marks: dict[str, str | None],
    ) -> list[GenerationRequest]:
        """The requests with what the environment shows at the end of their prompts, asked once for each prompt. The
        answers and their `marks`, by prompt, are added."""
        first = {one.prompt.uid: one for one in reversed(requests) if one.prompt.opening is None}
        asked = [*first.values()]
        opened = {}
        for one, (answer, mark) in zip(asked, self._toolbox.openings(asked, version=version), strict=True):
            opening = self._renderer.opening(answer, one.prompt) if answer.shown else None
            opened[one.prompt.uid] = one.prompt.opened(opening)
            answered.append(answer)
            marks[one.prompt.uid] = mark
        return [replace(one, prompt=opened.get(one.prompt.uid, one.prompt)) for one in requests]

    def _take(self, conversation: Conversation, turn: Rollout) -> None:
        """Begin what a turn of the model asks for, or end the conversation."""
        conversation.turns.append(turn)
        is_whole = turn.response_ids[-1] == self._turn_end
        is_last = len(conversation.turns) == self._tools.max_turns
        if is_whole and (not is_last or self._toolbox.takes_turns):
            conversation.begun = self._toolbox.begin(conversation.last_turn, self._reader.calls(turn))
            conversation.end = None if conversation.begun is not None else turn.finish_reason
        else:
            conversation.end = "turns" if is_whole and self._reader.calls(turn) else turn.finish_reason
        if conversation.begun is None:
            conversation.begun = self._toolbox.leave(conversation.last_turn)

    def _answer(self, conversation: Conversation) -> list[Answer]:
        """Wait for what the last turn has asked for, and let it follow, unless the conversation has ended."""
        begun, conversation.begun = conversation.begun, None
        assert begun is not None, "only conversations that wait for something are answered"
        shown = len(conversation.pictures) - conversation.request.prompt.row_images
        answers = self._toolbox.answers(begun, images_left=self._tools.max_images - shown)
        result = None if begun.environment is None else begun.environment.result()
        if result is not None:
            conversation.environment = result.numbers  # none where it failed
            if begun.of_environment is not None and result.error is None:
                marks = tuple(mark_of(own.words) for own in result.results)
                conversation.past.append(begun.of_environment._replace(results=marks))
                conversation.end = "done" if result.is_done else None
        if begun.calls and conversation.end is None:
            if len(conversation.turns) == self._tools.max_turns:
                conversation.end = "turns"
            elif (rendered := self._renderer.render(answers)) is None:
                conversation.end = "length"
                if begun.environment is None:
                    conversation.begun = self._toolbox.leave(conversation.last_turn)
            else:
                conversation.add_results(answers, rendered)
        return answers


def conversing(
    tools: ToolsConfig | None,
    data: DataConfig,
    model_folder: Path,
    *,
    isolated: IsolatedTools | None = None,
    images: ImageStore | None = None,
) -> Conversing:
    """How responses are generated: in single turns where there are no tools. `isolated` and `images` as in `Toolbox`.
    Raises ValueError as `Conversations` and `tool_schemas` do."""
    if tools is None:
        return single_turn
    chat = ChatRenderer(
        model_folder,
        prompt_template=None,
        system_prompt=None,
        chat_template_kwargs=data.chat_template_kwargs,
        tools=tool_schemas(tools, data),
    )
    return Conversations(tools, data, chat, isolated=isolated, images=images)
