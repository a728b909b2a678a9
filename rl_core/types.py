"""The values that cross rooms and processes: token ids, log-probs, scalars and image uids.

Every sequence is an array of its own length; nothing here is padded and nothing here is a model tensor, so all of it
pickles cheaply (docs/architecture.md, "Ragged, never padded").
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rl_core.answers import Answer, answer_text

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
Float32Array = npt.NDArray[np.float32]

FinishReason = Literal["stop", "length"]

EvaluatedModel = Literal["base", "trained"]
"""Which of a run's models answers the held-out prompts: the one that RL starts from, or the one that it made."""

RolloutKey = tuple[str, int]
"""(prompt uid, sample index): names a rollout within a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VideoClip:
    """The frames of a video that are shown.

    Attributes:
        frame_uids: Image uids of the frames, an even number of them.
        fps: Frames a second; the first frame is at 0 s.
    """

    frame_uids: tuple[str, ...]
    fps: float

    @property
    def uid(self) -> str:
        """Stands for the clip in caches: frames and pace."""
        return hashlib.sha256(f"{self.frame_uids} {self.fps}".encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """One prepared row: what is asked, in text and in token ids.

    Attributes:
        uid: Stable identity of the row (a content hash); keys every random draw made for it.
        data_source: Name of the source it came from.
        question: The user's text before the prompt template.
        text: The rendered chat prompt, as it was tokenised (one placeholder an image or video).
        answer: Ground truth, of the type that its column has; only ever shown to the reward and the cold start.
        token_ids: [P] int32, every image and video expanded to its placeholder tokens; what the trainer sees.
        engine_token_ids: [E] int32, one placeholder token an image or video; what vLLM takes and expands itself.
        image_uids: One uid an image, in the order of their places in the prompt.
        videos: The videos, in the order of their places in the prompt.
        extra: Every other column of the row (JSON values).
    """

    uid: str
    data_source: str
    question: str
    text: str
    answer: Answer
    token_ids: Int32Array
    engine_token_ids: Int32Array
    image_uids: tuple[str, ...] = ()
    videos: tuple[VideoClip, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def answer_text(self) -> str:
        """The answer as text: itself, or its JSON."""
        return answer_text(self.answer)

    @property
    def shown_uids(self) -> tuple[str, ...]:
        """Uids of everything a person can be shown: the images, then the frames of the videos."""
        return self.image_uids + tuple(uid for clip in self.videos for uid in clip.frame_uids)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How responses are drawn. Training allows only a temperature: other filters would change the distribution that
    the trainer's log-probs describe (docs/architecture.md, "Generator and trainer agree"); evaluation may use all of
    them.

    Attributes:
        temperature: Divides the logits; 0 is greedy.
        max_tokens: Longest response, in tokens.
        top_p: Nucleus mass; 1 is off.
        top_k: Number of candidates; -1 is off.
    """

    temperature: float
    max_tokens: int
    top_p: float = 1.0
    top_k: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationRequest:
    """One response to draw. Its 63-bit seed is keyed by what it is for, never by when it runs.

    See docs/architecture.md, "Keyed randomness".
    """

    prompt: Prompt
    sample_index: int
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """One sampled response with its engine log-probs.

    Attributes:
        prompt_uid: The prompt it answers.
        sample_index: Its place in the group, 0 .. n-1.
        response_ids: [R] int32, R >= 1, the end-of-sequence token included when it was sampled.
        log_probs: [R] float32, of the distribution sampled from (temperature and token ban applied).
        text: The decoded response, special tokens left out.
        finish_reason: "stop" at an end-of-sequence token, "length" at max_tokens.
        policy_version: Version of the weights it was drawn with; the step asserts it.
    """

    prompt_uid: str
    sample_index: int
    response_ids: Int32Array
    log_probs: Float32Array
    text: str
    finish_reason: FinishReason
    policy_version: int

    @property
    def key(self) -> RolloutKey:
        """Names the rollout within its step."""
        return self.prompt_uid, self.sample_index


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """A prompt and its n rollouts, ordered by sample_index: one tree in the packed forward."""

    prompt: Prompt
    rollouts: Sequence[Rollout]

    def part(self, which: slice) -> "Group":
        """The prompt with some of its rollouts."""
        return replace(self, rollouts=self.rollouts[which])


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """A reward's verdict on one rollout.

    Attributes:
        components: Named numbers, `overall` among them; empty when `error` is set.
        parsed: The answer the scorer read from the response, if it reads one.
        error: Why there is no score (timeout, crash, exception text); None when there is one.
    """

    components: Mapping[str, float]
    parsed: str | None = None
    error: str | None = None

    @property
    def overall(self) -> float:
        """The number that is optimised. Raises KeyError for a failed score: check `error` first."""
        return self.components["overall"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainSample:
    """A rollout with what its policy loss needs, all [R] float32.

    Attributes:
        rollout: The sampled response.
        advantages: Credit of each token.
        old_log_probs: Log-probs under the policy that sampled (the engine's, or recomputed).
        ref_log_probs: Log-probs under the frozen reference; None when KL is off.
        importance_weights: Factors of the policy loss from the off-policy correction; None for 1.
        values: The critic's value before each token, before the update; None without a critic.
        returns: What it should have said; None without a critic.
    """

    rollout: Rollout
    advantages: Float32Array
    old_log_probs: Float32Array
    ref_log_probs: Float32Array | None = None
    importance_weights: Float32Array | None = None
    values: Float32Array | None = None
    returns: Float32Array | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainGroup:
    """A prompt and its samples: the tree that one part of an update walks."""

    prompt: Prompt
    samples: Sequence[TrainSample]

    @property
    def rollouts(self) -> Sequence[Rollout]:
        """The rollouts of the samples, in their order."""
        return [sample.rollout for sample in self.samples]

    def part(self, which: slice) -> "TrainGroup":
        """The prompt with some of its samples."""
        return replace(self, samples=self.samples[which])


@dataclass(frozen=True, kw_only=True, slots=True)
class SupervisedExample:
    """A prompt and the response to imitate. `target_ids`: [R] int32, end-of-sequence token included."""

    prompt: Prompt
    target_ids: Int32Array
