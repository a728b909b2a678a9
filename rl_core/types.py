"""The values that packages and processes exchange. Every sequence is an array of its own length, nothing is padded, and
nothing is a tensor of a model, so everything pickles cheaply (docs/architecture.md, "Ragged, never padded")."""

import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rl_core.answers import Answer, answer_text
from rl_core.image_sizes import ImageSizes
from rl_core.unscored import NOT_FOR_SAMPLE

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]

FinishReason = Literal["stop", "length", "turns", "done"]
"""How a response ended: by the model's own end, at a limit of tokens, or with a call in its last turn."""

EvaluatedModel = Literal["base", "trained"]
"""Which of a run's models is evaluated: the model that RL starts from, or the trained model."""

RolloutKey = tuple[str, int]
"""(prompt uid, sample index): identifies a rollout within a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VideoClip:
    """The frames of a video that the model gets: an even number, by their image uids, of which the first is at 0 s."""

    frame_uids: tuple[str, ...]
    fps: float

    @property
    def uid(self) -> str:
        """Identifies the clip in caches, by its frames and frame rate."""
        return hashlib.sha256(f"{self.frame_uids} {self.fps}".encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """One prepared row: the prompt as text and as token ids.

    Attributes:
        uid: Stable identity of the row (a content hash); part of the key of its random seeds.
        question: The user's text before the prompt template.
        text: The rendered chat prompt as it was tokenised (one placeholder for each image or video).
        answer: Of the type that its column has; only the reward and the cold start get it.
        token_ids: [P] int32, every image and video expanded to its placeholder tokens, for the trainer.
        image_sizes: Of each image; empty where it is not known.
        engine_token_ids: [E] int32, one placeholder token for each image or video, for vLLM, which expands it itself.
        extra: Every other column of the row (JSON values).
        opening: What an environment has shown at its end; it is part of the text, the tokens and the images.
    """

    uid: str
    data_source: str
    question: str
    text: str
    answer: Answer
    token_ids: Int32Array
    engine_token_ids: Int32Array
    image_uids: tuple[str, ...] = ()
    image_sizes: tuple[ImageSizes, ...] = ()
    videos: tuple[VideoClip, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    opening: "EnvironmentOpening | None" = None

    @property
    def answer_text(self) -> str:
        """The answer if it is text, else its JSON."""
        return answer_text(self.answer)

    @property
    def shown_uids(self) -> tuple[str, ...]:
        """Uids of all pictures: the images, then the frames of the videos."""
        return self.image_uids + tuple(uid for clip in self.videos for uid in clip.frame_uids)

    @property
    def row_images(self) -> int:
        """Number of its images that are the row's own."""
        return len(self.image_uids) - (0 if self.opening is None else len(self.opening.image_uids))

    def opened(self, opening: "EnvironmentOpening | None") -> "Prompt":
        """The prompt with what the environment shows at its end; itself where that is nothing, or is there already."""
        if opening is None or self.opening is not None:
            return self

        def put(ids: Int32Array, between: Int32Array) -> Int32Array:
            return np.concatenate([ids[: -opening.tail_tokens], between, ids[-opening.tail_tokens :]])

        letters = len(self.text) - opening.tail_letters
        return replace(
            self,
            text=self.text[:letters] + opening.text + self.text[letters:],
            token_ids=put(self.token_ids, opening.token_ids),
            engine_token_ids=put(self.engine_token_ids, opening.engine_token_ids),
            image_uids=(*self.image_uids, *opening.image_uids),
            image_sizes=(*self.image_sizes, *opening.image_sizes),
            opening=opening,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How responses are sampled: at a temperature (0 is greedy), at most so many tokens, and from a probability mass
    (nucleus sampling; 1 is off). Training uses only the temperature, because top_p changes the distribution, so that
    the trainer's log-probs would not describe it."""

    temperature: float
    max_tokens: int
    top_p: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationRequest:
    """A request for one response. Its 63-bit seed depends on what it is for, not on when it runs (docs/architecture.md,
    "Keyed randomness")."""

    prompt: Prompt
    sample_index: int
    seed: int
    group_seed: int = 0
    """The same for all samples of the prompt; environments begin with it."""


CallOutcome = Literal["answered", "invalid", "failed"]
"""How a tool call ended: with a result, with the model told its mistake, or with the tool's failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A call of a tool by the model: the name and the JSON text of the arguments that the model wrote, if it wrote
    them readably, and what the model was told."""

    name: str
    arguments: str
    result: str
    outcome: CallOutcome


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentOpening:
    """What an environment shows of its first state: the last part of the prompt's last turn. It is the same for all
    samples of a prompt.

    Attributes:
        text: As it was tokenised.
        token_ids, engine_token_ids: [I] and [E] int32, as those of an insertion.
        tail_letters, tail_tokens: Of the prompt's end, which follows it: the end of the turn, and the beginning of the
            model's.
        image_uids, image_sizes: Its images, in order.
        call: `reset` as a call, with what it has shown.
    """

    text: str
    token_ids: Int32Array
    engine_token_ids: Int32Array
    tail_letters: int
    tail_tokens: int
    image_uids: tuple[str, ...]
    image_sizes: tuple[ImageSizes, ...]
    call: ToolCall

    def as_record(self) -> dict[str, Any]:
        """In values of JSON."""
        arrays = {"token_ids": self.token_ids.tolist(), "engine_token_ids": self.engine_token_ids.tolist()}
        return asdict(self) | arrays | {"image_sizes": [sizes._asdict() for sizes in self.image_sizes]}

    @classmethod
    def of_record(cls, record: Mapping[str, Any] | None) -> "EnvironmentOpening | None":
        """The inverse of `as_record`; None of nothing."""
        if record is None:
            return None
        sizes = [(tuple(one["original"]), tuple(one["shown"])) for one in record["image_sizes"]]
        return cls(
            **{
                **record,
                "token_ids": np.array(record["token_ids"], np.int32),
                "engine_token_ids": np.array(record["engine_token_ids"], np.int32),
                "image_uids": tuple(record["image_uids"]),
                "image_sizes": tuple(ImageSizes(original=original, shown=shown) for original, shown in sizes),
                "call": ToolCall(**record["call"]),
            }
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Insertion:
    """Tokens that the environment put into a response, between two tokens that the model sampled.

    Attributes:
        after: Number of sampled tokens before it: from 1 to R - 1, so a response ends with the model's own token.
        token_ids: [I] int32, from the end of the model's turn to the beginning of its next one, images expanded.
        engine_token_ids: [E] int32, the same with one placeholder for each image.
        turn: The decoded text of the model's turn before it, as `Rollout.text`.
        image_uids: Its images, in order.
        calls: The calls that it answers, in the order of the model.
    """

    after: int
    token_ids: Int32Array
    engine_token_ids: Int32Array
    turn: str
    image_uids: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()

    def as_record(self) -> dict[str, Any]:
        """In values of JSON."""
        arrays = {"token_ids": self.token_ids.tolist(), "engine_token_ids": self.engine_token_ids.tolist()}
        return asdict(self) | arrays

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> "Insertion":
        """The inverse of `as_record`."""
        return cls(
            after=record["after"],
            token_ids=np.array(record["token_ids"], np.int32),
            engine_token_ids=np.array(record["engine_token_ids"], np.int32),
            turn=record["turn"],
            image_uids=tuple(record["image_uids"]),
            calls=tuple(ToolCall(**call) for call in record["calls"]),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """One sampled response with the generator's log-probs. Where the model has called tools it consists of several
    turns of the model, one after the other, and what came between them are its insertions.

    Attributes:
        response_ids: [R] int32, R >= 1, what the model sampled, including the end-of-sequence token of each turn that
            has one.
        log_probs: [R] float32, under the distribution that was sampled from (with temperature and token ban).
        text: The decoded response without special tokens: of several turns the last one.
        policy_version: Version of the weights that sampled it; each step checks it.
        insertions: In their order; none in a response of one turn.
        environment: The numbers that its environment gave at the end, by their names.
        opening: What its environment showed at the end of the prompt.
    """

    prompt_uid: str
    sample_index: int
    response_ids: Int32Array
    log_probs: Float32Array
    text: str
    finish_reason: FinishReason
    policy_version: int
    insertions: tuple[Insertion, ...] = ()
    environment: Mapping[str, float] = field(default_factory=dict)
    opening: EnvironmentOpening | None = None

    @property
    def key(self) -> RolloutKey:
        """Identifies the rollout within its step."""
        return self.prompt_uid, self.sample_index

    @property
    def image_uids(self) -> tuple[str, ...]:
        """Those of the insertions, in order."""
        return tuple(uid for put in self.insertions for uid in put.image_uids)

    @property
    def num_tokens(self) -> int:
        """Tokens that a pass computes: the sampled ones and the insertions."""
        return len(self.response_ids) + sum(len(put.token_ids) for put in self.insertions)


RolloutStream = Generator[Rollout, None, None]
"""Rollouts in the order in which they are finished. Closing it ends the generation, and drops what is not finished."""

Generate = Callable[[Sequence["GenerationRequest"], "Sampling"], RolloutStream]
"""A function that yields one rollout for each request, in any order."""

Further = Callable[[], "Sequence[GenerationRequest] | None"]
"""Gives, without waiting, the requests that have come since it was asked last; None when no more will come."""


@dataclass(frozen=True, slots=True)
class RequestFeed:
    """Requests of which some come while others are answered: `further` is asked for them in the middle of the
    generation, and gives those of the groups of `first`."""

    first: Sequence["GenerationRequest"]
    further: Further


Requests = Sequence["GenerationRequest"] | RequestFeed
"""What is generated in one go."""

GenerateTurns = Callable[[Requests, "Sampling"], RolloutStream]
"""WorkerGroup.generate, or another `Generate` that takes a feed too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """A prompt and its n rollouts, ordered by sample_index: one tree in the packed forward pass."""

    prompt: Prompt
    rollouts: Sequence[Rollout]

    @classmethod
    def of(cls, prompt: Prompt, rollouts: Sequence[Rollout]) -> "Group":
        """The group of a row's prompt, with what the environment showed at its end."""
        return cls(prompt=prompt.opened(rollouts[0].opening), rollouts=rollouts)

    def part(self, which: slice) -> "Group":
        """With some of its rollouts."""
        return replace(self, rollouts=self.rollouts[which])


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """The reward of one rollout: named numbers, `overall` among them, and the answer that the reward read, if it reads
    one. If it failed, or is not for this response, there are no numbers, and `error` says why. `skipped` are the parts
    of a mixture that are not for this response."""

    components: Mapping[str, float]
    parsed: str | None = None
    error: str | None = None
    skipped: tuple[str, ...] = ()

    @property
    def has_failed(self) -> bool:
        """Whether there are no numbers because of a failure."""
        return self.error not in (None, NOT_FOR_SAMPLE)

    @property
    def overall(self) -> float:
        """The number that is optimised. Raises KeyError if the reward failed: check `error` first."""
        return self.components["overall"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSample:
    """A rollout with everything that its losses need; arrays are [R] float32.

    Attributes:
        old_log_probs: Log-probs under the policy that sampled (the generator's, or recomputed).
        ref_log_probs: Log-probs under the frozen reference; None if they are not needed.
        importance_weights: Factors of the policy loss from the off-policy correction; None for 1.
        values: The critic's value before each token, before the update; None if there is no critic.
        returns: The critic's targets; None if there is no critic.
        in_loss: False leaves its tokens out of every loss and of the means over tokens.
    """

    rollout: Rollout
    advantages: Float32Array
    old_log_probs: Float32Array
    ref_log_probs: Float32Array | None = None
    importance_weights: Float32Array | None = None
    values: Float32Array | None = None
    returns: Float32Array | None = None
    in_loss: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainGroup:
    """A prompt and its samples: one tree of an update."""

    prompt: Prompt
    samples: Sequence[TrainSample]

    @property
    def rollouts(self) -> Sequence[Rollout]:
        """In the order of the samples."""
        return [sample.rollout for sample in self.samples]

    def part(self, which: slice) -> "TrainGroup":
        """With some of its samples."""
        return replace(self, samples=self.samples[which])


@dataclass(frozen=True, kw_only=True, slots=True)
class SupervisedExample:
    """A prompt and the response to imitate. `target_ids`: [R] int32, including the end-of-sequence token."""

    prompt: Prompt
    target_ids: Int32Array
