"""What is asked: sources of rows, prompts and pixel limits."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field, PositiveFloat

from rl_core.section import Section
from rl_core.sources.kinds import SingleSource
from rl_core.sources.mixture import MixtureSource

Source = Annotated[SingleSource | MixtureSource, Field(discriminator="type")]
"""A source of rows, of any kind."""


class CurriculumConfig(Section):
    """An order of the training rows from easy to hard."""

    column: str
    """Column with a number for every training row; each epoch goes from the smallest to the largest. Rows with equal
    numbers come in the order they would have without a curriculum."""
    descending: bool = False
    """From the largest number to the smallest."""


class DataConfig(Section):
    """Training and validation rows and how they become prompts."""

    train: Source
    """Rows that are trained on."""
    validation: Source
    """Held-out rows: validation during training and the evaluation stage. No image may be shared with `train`."""
    prompt_template: str | None = None
    """Jinja file (variable `content`) wrapped around each question; null leaves the question alone."""
    system_prompt: str | None = None
    """Text of a system message before each conversation that has none of its own."""
    override_chat_template: str | None = None
    """Jinja file that replaces the model's chat template, in the merged model too; null keeps the model's own."""
    max_prompt_length: int = Field(default=1024, ge=8)
    """Longest prompt in tokens, image tokens included."""
    overlong: Literal["filter", "error"] = "filter"
    """Longer prompts are dropped and counted, or refused; they are never cut."""
    max_bad_share: float = Field(default=0.01, ge=0.0, le=1.0)
    """Preparation stops when more than this share of the rows is unusable."""
    min_pixels: int = Field(default=3136, ge=1)
    """Smaller images are enlarged to this area, pixels."""
    max_pixels: int = Field(default=4_194_304, ge=1)
    """Larger images are reduced to this area, pixels."""
    video_fps: float = Field(default=2.0, gt=0.0)
    """Frames a second that are taken of a video; min_pixels and max_pixels hold for each frame."""
    video_max_frames: int = Field(default=128, ge=2, multiple_of=2)
    """Most frames of a video; a longer one is shown at a slower pace."""
    rollout_batch_size: int = Field(default=512, ge=1, le=1_000_000)
    """Prompts a training step."""
    shuffle: bool = True
    """Draw the rows of an epoch in an order keyed by seed and epoch; false keeps their order."""
    source_weights: dict[str, PositiveFloat] | None = None
    """Share of every batch by data source, relative to each other; every data source of the training rows must be
    named. Null takes each row once an epoch."""
    curriculum: CurriculumConfig | None = None
    """Order of the training rows; null takes them as `shuffle` says."""


ARRANGING: Final[Mapping[str, bool | set[str]]] = {
    "rollout_batch_size": True,
    "shuffle": True,
    "source_weights": True,
    "curriculum": {"descending"},
}
"""What of `data` chooses among prepared rows, and changes none of them, as pydantic's `exclude` takes it."""
