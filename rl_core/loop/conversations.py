"""Conversations: the model's calls are answered, and it goes on, in rounds.

A round is one list of requests in the order of their keys; the calls of its turns are answered, and the next round
begins. So what is generated does not depend on which turn was finished first.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from rl_core.config.data import DataConfig
from rl_core.config.run import RunConfig
from rl_core.config.tools import ToolsConfig
from rl_core.data.chat import ChatRenderer, RenderedPrompt
from rl_core.data.images import ImageStore
from rl_core.evaluation.evaluate import Generate
from rl_core.randomness import keyed_seed
from rl_core.tools.calls import calls_in
from rl_core.tools.own_tools import OwnTools
from rl_core.tools.tool import Picture, ToolSample
from rl_core.tools.toolbox import Answer, Begun, Toolbox, tool_schemas
from rl_core.tools.turns import TurnRenderer
from rl_core.types import FinishReason, GenerationRequest, Insertion, Rollout, RolloutStream, Sampling

Conversing = Callable[[Generate], Generate]
"""Makes of a function that generates single turns one that generates whole responses."""


def single_turn(generate: Generate) -> Generate:
    """Without tools a response is one turn."""
    return generate


@dataclass(slots=True)
class _Conversation:
    """What has been said in answer to a request.

    Attributes:
        asked: The request of the next turn, or of the last one if there is no next.
        pictures: Those of the prompt and of all results.
        begun: The calls of the last turn; without any the conversation has ended.
    """

    request: GenerationRequest
    asked: GenerationRequest
    pictures: list[Picture]
    turns: list[Rollout] = field(default_factory=list)
    insertions: list[Insertion] = field(default_factory=list)
    begun: list[Begun] = field(default_factory=list)

    def response(self, finish_reason: FinishReason) -> Rollout:
        """The whole response."""
        return replace(
            self.turns[-1],
            prompt_uid=self.request.prompt.uid,
            sample_index=self.request.sample_index,
            response_ids=np.concatenate([turn.response_ids for turn in self.turns]),
            log_probs=np.concatenate([turn.log_probs for turn in self.turns]),
            finish_reason=finish_reason,
            insertions=tuple(self.insertions),
        )

    def add_results(self, answers: Sequence[Answer], rendered: RenderedPrompt) -> None:
        """Let the results follow the last turn, and ask for the next one."""
        shown = [picture for answer in answers for picture in answer.pictures]
        said, before, number = self.turns[-1], self.asked.prompt, len(self.turns)
        uids = tuple(picture.uid for picture in shown)
        self.pictures += shown
        self.insertions.append(
            Insertion(
                after=sum(len(turn.response_ids) for turn in self.turns),
                token_ids=rendered.token_ids,
                engine_token_ids=rendered.engine_token_ids,
                turn=said.text,
                image_uids=uids,
                calls=tuple(answer.call for answer in answers),
            )
        )
        longer = replace(
            before,
            uid=f"{self.request.prompt.uid}/{self.request.sample_index}/{number}",
            token_ids=np.concatenate([before.token_ids, said.response_ids, rendered.token_ids]),
            engine_token_ids=np.concatenate([before.engine_token_ids, said.response_ids, rendered.engine_token_ids]),
            image_uids=(*before.image_uids, *uids),
        )
        self.asked = replace(self.asked, prompt=longer, seed=keyed_seed(self.request.seed, "turn", number))


class Conversations:
    """Generates responses of several turns. `chat` renders the prompts of the run; `own` and `images` as in `Toolbox`.
    Raises ValueError where the model's chat template cannot carry a conversation."""

    def __init__(
        self,
        tools: ToolsConfig,
        data: DataConfig,
        chat: ChatRenderer,
        *,
        own: OwnTools | None = None,
        images: ImageStore | None = None,
    ) -> None:
        self._tools = tools
        self._toolbox = Toolbox(tools, data, chat.vision, own=own, images=images)
        self._renderer = TurnRenderer(chat, tools)
        self._renderer.check()
        self._turn_end = self._renderer.turn_end

    def __call__(self, generate: Generate) -> Generate:
        """A function that generates whole responses with one that generates single turns."""

        def conversed(requests: Sequence[GenerationRequest], sampling: Sampling) -> RolloutStream:
            waiting = [_Conversation(one, one, self._toolbox.pictures_of(one.prompt)) for one in requests]
            answered: list[Answer] = []
            while waiting:
                by_key = {(one.asked.prompt.uid, one.asked.sample_index): one for one in waiting}
                with closing(generate([one.asked for one in waiting], sampling)) as rollouts:
                    for rollout in rollouts:
                        conversation = by_key[rollout.key]
                        if (ended := self._ended(conversation, rollout)) is not None:
                            yield conversation.response(ended)
                self._toolbox.flush()
                called, waiting = [one for one in waiting if one.begun], []
                for conversation in called:
                    answers = self._answers(conversation)
                    answered += answers
                    if (rendered := self._renderer.render(answers)) is None:
                        yield conversation.response("length")
                    else:
                        conversation.add_results(answers, rendered)
                        waiting.append(conversation)
            self._toolbox.check_failures(answered)

        return conversed

    def _ended(self, conversation: _Conversation, turn: Rollout) -> FinishReason | None:
        """How the conversation has ended with this turn of the model; None where its calls are begun."""
        conversation.turns.append(turn)
        if turn.response_ids[-1] != self._turn_end or not (calls := calls_in(turn.text)):
            return turn.finish_reason
        if len(conversation.turns) == self._tools.max_turns:
            return "turns"
        request = conversation.request
        sample = ToolSample.of(request.prompt, request.sample_index, tuple(conversation.pictures))
        seed, version = conversation.asked.seed, turn.policy_version
        conversation.begun = self._toolbox.begin(calls, sample, seed=seed, version=version)
        return None

    def _answers(self, conversation: _Conversation) -> list[Answer]:
        begun, conversation.begun = conversation.begun, []
        shown = len(conversation.pictures) - len(conversation.request.prompt.image_uids)
        return self._toolbox.answers(begun, images_left=self._tools.max_images - shown)


def conversing(
    config: RunConfig, model_folder: Path, *, own: OwnTools | None = None, images: ImageStore | None = None
) -> Conversing:
    """How the run's responses are generated: in single turns where it has no tools. `own` and `images` as in `Toolbox`.
    Raises ValueError as `Conversations` and `own_schemas` do."""
    tools, data = config.tools, config.data
    if tools is None:
        return single_turn
    chat = ChatRenderer(
        model_folder,
        prompt_template=None,
        system_prompt=None,
        chat_template_kwargs=data.chat_template_kwargs,
        tools=tool_schemas(tools, data),
    )
    return Conversations(tools, data, chat, own=own, images=images)
