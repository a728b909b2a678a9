"""One conversation: the model's turns, and what came between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rl_core.data.chat import RenderedPrompt
from rl_core.randomness import keyed_seed
from rl_core.tools.messages import EnvironmentTurn
from rl_core.tools.tool import Picture, ToolSample
from rl_core.tools.toolbox import Answer, BegunTurn, ModelTurn
from rl_core.types import FinishReason, GenerationRequest, Insertion, Rollout, RolloutKey


@dataclass(slots=True)
class Conversation:
    """The answer to a request as far as it goes.

    Attributes:
        asked: The request of the next turn, or of the last one if there is no next.
        pictures: Those of the prompt and of all results.
        begun: What the last turn asks for; None if it asks for nothing.
        opening: The mark of what the environment showed at the end of the prompt.
        past, environment: The turns with calls to the environment, and its numbers after them.
        end: How the conversation has ended; None while it goes on.
    """

    request: GenerationRequest
    asked: GenerationRequest
    pictures: list[Picture]
    opening: str | None
    turns: list[Rollout] = field(default_factory=list)
    insertions: list[Insertion] = field(default_factory=list)
    begun: BegunTurn | None = None
    past: list[EnvironmentTurn] = field(default_factory=list)
    environment: Mapping[str, float] = field(default_factory=dict)
    end: FinishReason | None = None

    @property
    def key(self) -> RolloutKey:
        """Of the rollout of the next turn."""
        return self.asked.prompt.uid, self.asked.sample_index

    def response(self) -> Rollout:
        """The whole response, when the conversation has ended."""
        assert self.end is not None, "it has ended"
        return replace(
            self.turns[-1],
            prompt_uid=self.request.prompt.uid,
            sample_index=self.request.sample_index,
            response_ids=np.concatenate([turn.response_ids for turn in self.turns]),
            log_probs=np.concatenate([turn.log_probs for turn in self.turns]),
            finish_reason=self.end,
            insertions=tuple(self.insertions),
            environment=self.environment,
            opening=self.request.prompt.opening,
        )

    @property
    def last_turn(self) -> ModelTurn:
        """The turn that was sampled last, for the tools."""
        turn, request = self.turns[-1], self.request
        return ModelTurn(
            text=turn.text,
            sample=ToolSample.of(request.prompt, request.sample_index, tuple(self.pictures)),
            version=turn.policy_version,
            seed=self.asked.seed,
            conversation=request.seed,
            group=request.group_seed,
            past=tuple(self.past),
            row_pictures=request.prompt.row_images,
            opening=self.opening,
        )

    def add_results(self, answers: Sequence[Answer], rendered: RenderedPrompt) -> None:
        """Let the results follow the last turn, and ask for the next one."""
        shown = [picture for answer in answers for picture in answer.pictures]
        turn, before, number = self.turns[-1], self.asked.prompt, len(self.turns)
        uids = tuple(picture.uid for picture in shown)
        self.pictures += shown
        self.insertions.append(
            Insertion(
                after=sum(len(turn.response_ids) for turn in self.turns),
                token_ids=rendered.token_ids,
                engine_token_ids=rendered.engine_token_ids,
                turn=turn.text,
                image_uids=uids,
                calls=tuple(answer.call for answer in answers),
            )
        )
        longer = replace(
            before,
            uid=f"{self.request.prompt.uid}/{self.request.sample_index}/{number}",
            token_ids=np.concatenate([before.token_ids, turn.response_ids, rendered.token_ids]),
            engine_token_ids=np.concatenate([before.engine_token_ids, turn.response_ids, rendered.engine_token_ids]),
            image_uids=(*before.image_uids, *uids),
        )
        self.asked = replace(self.asked, prompt=longer, seed=keyed_seed(self.request.seed, "turn", number))
