"""The sample that a reward function gets: a response with its row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rl_core.answers import Answer, answer_text
from rl_core.image_sizes import ImageSizes

if TYPE_CHECKING:  # the scoring processes import this file and need neither numpy nor the other types
    from PIL import Image

    from rl_core.types import EnvironmentOpening, FinishReason, Insertion, Prompt, Rollout


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardSample:
    """One response with everything that may help to score it, in plain values; docs/rewards.md describes them."""

    response: str
    ground_truth: Answer
    response_length: int
    prompt: str
    question: str
    data_source: str
    prompt_uid: str
    sample_index: int = 0
    image_uids: tuple[str, ...] = ()
    image_sizes: tuple[ImageSizes, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    response_ids: Sequence[int] = ()
    finish_reason: "FinishReason" = "stop"
    step: int = 0
    turns: Sequence[Mapping[str, Any]] = ()
    environment: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int]:
        """Its place among the samples of a step."""
        return self.prompt_uid, self.sample_index

    @property
    def seed_text(self) -> str:
        """What the random numbers that a reward draws for it depend on."""
        return f"{self.prompt}\x1f{self.response}"

    @property
    def ground_truth_text(self) -> str:
        """The answer; its JSON if it is no text."""
        return answer_text(self.ground_truth)

    def images(self) -> "list[Image.Image]":
        """The RGB images of the row, scaled to `data.min_pixels` and `data.max_pixels`."""
        from rl_core.data.images import images_of_run  # loads pyarrow and Pillow, which few rewards need

        return [images_of_run().image(uid) for uid in self.image_uids]

    @classmethod
    def of(cls, prompt: "Prompt", rollout: "Rollout", *, step: int) -> "RewardSample":
        """The sample of one rollout of `prompt`, in a training step from 1 on; in a validation or an evaluation, `step`
        is the one after which the model is asked."""
        length, index = len(rollout.response_ids), rollout.sample_index
        prompt = prompt.opened(rollout.opening)
        sample = cls.of_text(prompt, rollout.text, sample_index=index, response_length=length)
        return replace(
            sample,
            response_ids=rollout.response_ids.tolist(),
            finish_reason=rollout.finish_reason,
            step=step,
            turns=tuple(turns_of(rollout.insertions, rollout.text, opening=rollout.opening)),
            environment=dict(rollout.environment),
        )

    @classmethod
    def of_text(
        cls, prompt: "Prompt", response: str, *, sample_index: int = 0, response_length: int = 0
    ) -> "RewardSample":
        """The sample of a response that no model has sampled: it has no token ids."""
        return cls(
            response=response,
            ground_truth=prompt.answer,
            response_length=response_length,
            prompt=prompt.text,
            question=prompt.question,
            data_source=prompt.data_source,
            prompt_uid=prompt.uid,
            sample_index=sample_index,
            image_uids=prompt.image_uids,
            image_sizes=prompt.image_sizes,
            extra=dict(prompt.extra),
        )


def turns_of(
    insertions: "Iterable[Insertion]", last: str, *, opening: "EnvironmentOpening | None"
) -> Iterator[Mapping[str, Any]]:
    """What an environment showed at the beginning; what the model has said, at last `last`, and after each turn but the
    last one the calls in it with their results, in JSON values."""
    if opening is not None:
        yield {"role": "tool", "calls": [asdict(opening.call)], "image_uids": list(opening.image_uids)}
    for put in insertions:
        yield {"role": "assistant", "content": put.turn}
        yield {"role": "tool", "calls": [asdict(call) for call in put.calls], "image_uids": list(put.image_uids)}
    yield {"role": "assistant", "content": last}
