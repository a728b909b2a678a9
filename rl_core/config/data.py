"""The section `data`: sources of rows, prompts, limits on images and videos."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

from pydantic import Field, PositiveFloat
from typing_extensions import override

from rl_core.problem import Problem
from rl_core.section import Kwargs, Section
from rl_core.sources.mixture import MixtureSource, SingleSource

Source = Annotated[SingleSource | MixtureSource, Field(discriminator="type")]
"""A source of rows, of any kind."""


class CurriculumConfig(Section):
    """An order of the training rows, such as from easy to hard."""

    column: str
    """Column with a number for every training row; an epoch begins with the smallest."""
    descending: bool = False
    """Begin with the largest number."""


class DataConfig(Section):
    """Training rows and held-out rows, and how they become prompts."""

    train: Source
    """Rows that are trained on."""
    validation: Source
    """Held-out rows of validation and evaluation, which share no image with `train`."""
    prompt_template: str | None = None
    """Jinja file wrapped around each question, with the variables `content` (the question), `options` (see
    `options_key`) and every further column (`row`: a mapping of them all); null takes the question as it is."""
    system_prompt: str | None = None
    """System message for each conversation that has none."""
    override_chat_template: str | None = None
    """Jinja file that replaces the model's chat template, in the merged model too; null keeps the model's own."""
    chat_template_kwargs: Kwargs = {}
    """Variables of the chat template, such as `{enable_thinking: false}`; who serves the merged model passes them
    again."""
    max_prompt_length: int = Field(default=1024, ge=8)
    """Longest prompt in tokens, image tokens included."""
    overlong: Literal["filter", "error"] = "filter"
    """Whether longer prompts are left out and counted, or stop the preparation."""
    max_bad_share: float = Field(default=0.01, ge=0.0, le=1.0)
    """Preparation stops when more than this share of the rows is unusable."""
    min_pixels: int = Field(default=3136, ge=1)
    """Images of a smaller area are enlarged to it, in pixels."""
    max_pixels: int = Field(default=4_194_304, ge=1)
    """Images of a larger area are reduced to it, in pixels."""
    max_source_pixels: int | None = Field(default=None, ge=1)
    """Keep images that `max_pixels` reduces in their own size too, or reduced to this area, so that `zoom` shows more
    than the prompt does; null keeps what the prompt shows alone."""
    video_fps: float = Field(default=2.0, gt=0.0)
    """Frames taken from each second of a video; min_pixels and max_pixels hold for each frame."""
    video_max_frames: int = Field(default=128, ge=2, multiple_of=2)
    """Most frames taken from a video."""
    rollout_batch_size: int = Field(default=512, ge=1, le=1_000_000)
    """Prompts of a training step."""
    shuffle: bool = True
    """Take the rows of each epoch in a random order; false keeps the order of the source."""
    source_weights: dict[str, PositiveFloat] | None = None
    """Share of each data source in every batch, relative to the sum; every data source must be named. Null takes each
    row once an epoch."""
    curriculum: CurriculumConfig | None = None
    """Orders the training rows by a column; null orders them as `shuffle` says."""

    @override
    def problems(self) -> Iterator[Problem]:
        if self.min_pixels > self.max_pixels:
            yield Problem(
                "min_pixels",
                f"{self.min_pixels} is above data.max_pixels {self.max_pixels}, so no image has an allowed size",
                "lower it, or raise data.max_pixels",
            )


ARRANGING: Final[Mapping[str, bool | set[str]]] = {
    "rollout_batch_size": True,
    "shuffle": True,
    "source_weights": True,
    "curriculum": {"descending"},
}
"""The keys of `data` that choose among prepared rows without changing any of them, in the form that pydantic's
`exclude` takes."""
