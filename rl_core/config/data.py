"""What is asked: sources of rows, their columns, prompts and pixel limits."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field, PositiveFloat

from rl_core.config.section import Section


class Columns(Section):
    """Which column of a row holds what (EasyR1's prompt_key, image_key and answer_key)."""

    prompt_key: str = "problem"
    """Column with the question, or with the turns of a conversation that ends with it (a list of mappings with `role`
    and `content`, or with `from` and `value`); each `<image>`, or part of type image, is the place of one image."""
    image_key: str | None = "images"
    """Column with one image or a list of them (PIL images, encoded bytes or paths); empty for a text-only row, null
    for a text-only source."""
    images_first: bool = False
    """Put a row's images and videos before a question that marks no place for them; without it such a row is
    unusable."""
    video_key: str | None = "videos"
    """Column with one video or a list of them (encoded bytes or paths); each `<video>` in the question is the place of
    one. Empty or null for rows without."""
    answer_key: str = "answer"
    """Column with the ground truth. The same column as prompt_key: the last turn of its conversations, the
    assistant's."""
    data_source_key: str | None = None
    """Column with the name of the row's data source; null gives every row the name of its file or repository, or its
    name in a mixture."""


class CountingSource(Section):
    """CLEVR-like scenes drawn on the spot; the question is how many objects are there."""

    type: Literal["counting"]
    """Selects this source."""
    size: int = Field(ge=1, le=1_000_000)
    """Number of scenes."""
    scene_seed: int = Field(ge=0)
    """Seed of the scenes; two sources with different seeds share no image."""
    image_size: int = Field(default=84, ge=28, le=1024)
    """Side of the square image, pixels."""
    min_objects: int = Field(default=1, ge=0, le=20)
    """Fewest objects in a scene."""
    max_objects: int = Field(default=6, ge=1, le=20)
    """Most objects in a scene."""
    object_size: tuple[float, float] = (0.08, 0.12)
    """Smallest and largest radius, as a share of the image side."""
    max_overlap: float = Field(default=0.0, ge=0.0, le=0.9)
    """Largest overlap of two objects, as a share of the smaller radius; 0 keeps them apart."""
    lighting: tuple[float, float] = (0.8, 1.2)
    """Range of the light's strength; equal ends fix it."""
    question: str = "<image>How many objects are there?"
    """The question asked of every scene."""


FILE_KINDS: Final = ("parquet", "jsonl", "json", "csv")
"""Files of rows, by the ending of their names."""


class LocalSource(Section):
    """A Parquet, JSONL, JSON or CSV file, or a folder of them or of items, on this machine."""

    type: Literal["local"]
    """Selects this source."""
    path: str
    """File or folder. A folder may hold Parquet / JSONL shards, or item folders as `format` says. A `*` in the last
    part takes every file of such a name, in order: `rows/train-*-of-00003.parquet`."""
    format: Literal["auto", "parquet", "jsonl", "json", "csv", "geometry3k", "imagefolder"] = "auto"
    """How rows are stored; `auto` goes by the ending. `json` is an array of objects, or one object a line. `geometry3k`
    is the published folder of item folders (data.json + img_diagram.png). `imagefolder` is a folder of classes, each a
    folder of images or videos: the class is the answer."""
    columns: Columns = Columns()
    """Names of the columns."""
    media_dir: str | None = None
    """Folder that relative paths of images and videos start from; the data file's own folder when null."""
    limit: int | None = Field(default=None, ge=1)
    """Take only the first rows."""


SPLIT_NAME: Final = r"^[^@\s]+@[^@\s]+$"
"""`name@split`: a data set of the hub, or a folder in its place, and one of its splits."""


class HubSource(Section):
    """A dataset of the Hugging Face hub, loaded through `datasets` (HF_ENDPOINT and HF_HUB_OFFLINE are honoured)."""

    type: Literal["hub"]
    """Selects this source."""
    name: str = Field(pattern=SPLIT_NAME)
    """`owner/name@split`."""
    revision: str | None = None
    """Branch, tag or commit; pin a commit to make the run reproducible."""
    columns: Columns = Columns()
    """Names of the columns."""
    media_dir: str | None = None
    """Folder on this machine that relative image paths start from; needed where rows hold paths."""
    limit: int | None = Field(default=None, ge=1)
    """Take only the first rows."""


SingleSource = Annotated[CountingSource | LocalSource | HubSource, Field(discriminator="type")]


class MixtureSource(Section):
    """Several sources, one after the other in the order of their names; `data.source_weights` says how often each is
    drawn in training."""

    type: Literal["mixture"]
    """Selects this source."""
    sources: dict[str, SingleSource] = Field(min_length=1)
    """The sources by name; their rows carry it as their data source."""


Source = Annotated[CountingSource | LocalSource | HubSource | MixtureSource, Field(discriminator="type")]


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
