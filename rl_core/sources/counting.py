"""The `counting` source: CLEVR-like scenes that are rendered when they are read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Self

from PIL import Image
from pydantic import Field
from typing_extensions import override

from rl_core.digests import digest_of
from rl_core.problem import Problem
from rl_core.sources.conversation import IMAGE_PLACE
from rl_core.sources.rows import BadRow, Row
from rl_core.sources.scene_layout import Scene, draw_scene
from rl_core.sources.scenes import render_scene
from rl_core.sources.source import DataSource, Glance

_MOST_LIGHT = 2.0


class CountingSource(DataSource):
    """CLEVR-like scenes that are rendered when they are read; the question is how many objects there are."""

    type: Literal["counting"]
    size: int = Field(ge=1, le=1_000_000)
    """Number of scenes."""
    scene_seed: int = Field(ge=0)
    """Seed of the scenes; sources with different seeds share no image."""
    image_size: int = Field(default=84, ge=28, le=1024)
    """Side of the square image, in pixels."""
    min_objects: int = Field(default=1, ge=0, le=20)
    """Fewest objects in a scene."""
    max_objects: int = Field(default=6, ge=1, le=20)
    """Most objects in a scene."""
    object_size: tuple[float, float] = (0.08, 0.12)
    """Smallest and largest radius, as a share of the image side."""
    max_overlap: float = Field(default=0.0, ge=0.0, le=0.9)
    """Largest overlap of two objects, as a share of the smaller radius."""
    lighting: tuple[float, float] = (0.8, 1.2)
    """Weakest and strongest light of a scene."""
    question: str = "<image>How many objects are there?"
    """The question asked of every scene."""

    @override
    def open(self) -> "CountingReader":
        return CountingReader(self)

    @override
    def fingerprint(self) -> str:
        return digest_of(self)

    @override
    def first_rows(self, count: int) -> Self:
        return self.model_copy(update={"size": min(self.size, count)})

    @override
    def glance(self) -> Glance:
        return Glance(rows=self.size, names=frozenset([self.type]), columns=frozenset(["objects"]))

    @property
    @override
    def known_rows(self) -> int:
        return self.size

    @override
    def problems(self) -> Iterator[Problem]:
        if self.min_objects > self.max_objects:
            yield Problem(
                where="min_objects",
                what=f"{self.min_objects} is above max_objects {self.max_objects}",
                fix="lower it, or raise max_objects",
            )
        low, high = self.object_size
        if not 0.0 < low <= high < 0.5:
            yield Problem(
                where="object_size",
                what=f"{list(self.object_size)} is no range of radii",
                fix="give the smallest and the largest radius, both above 0 and below 0.5",
            )
        dim, bright = self.lighting
        if not 0.0 < dim <= bright <= _MOST_LIGHT:
            yield Problem(
                where="lighting",
                what=f"{list(self.lighting)} is no range of light",
                fix=f"give the weakest and the strongest light, both above 0 and at most {_MOST_LIGHT:g}",
            )
        if self.question.count(IMAGE_PLACE) != 1:
            yield Problem(
                where="question",
                what=f"{self.question!r} does not have exactly one {IMAGE_PLACE}",
                fix="mark the place of the scene once",
            )

    def scene(self, index: int) -> Scene:
        """Scene number `index`. Raises ValueError where its objects find no room."""
        return draw_scene(
            self.scene_seed,
            index,
            counts=(self.min_objects, self.max_objects),
            radii=self.object_size,
            max_overlap=self.max_overlap,
            lighting=self.lighting,
        )


@dataclass(frozen=True, slots=True)
class CountingReader:
    """Scenes 0 .. size-1 of a source; the answer is the number of objects, and `extra` has the `objects` themselves."""

    source: CountingSource

    @property
    def name(self) -> str:
        """Always "counting"."""
        return self.source.type

    @property
    def row_count(self) -> int:
        """Number of scenes."""
        return self.source.size

    def __iter__(self) -> Iterator[Row | BadRow]:
        for index in range(self.source.size):
            yield self._row(index, self.source.scene(index))

    def _row(self, index: int, scene: Scene) -> Row:
        image = Image.fromarray(render_scene(scene, image_size=self.source.image_size))
        objects = [item._asdict() for item in scene.objects]
        return Row(
            index=index,
            question=self.source.question,
            images=(image,),
            answer=str(len(objects)),
            data_source=self.name,
            extra={"objects": objects},
            origin=f"scene {self.source.scene_seed}/{index}",
        )
