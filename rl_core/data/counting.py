"""The `counting` source: CLEVR-like scenes drawn on the spot."""

from collections.abc import Iterator
from dataclasses import dataclass

from PIL import Image

from rl_core.config.data import CountingSource
from rl_core.data.rows import BadRow, Row
from rl_core.data.scene_layout import Scene, draw_scene
from rl_core.data.scenes import render_scenes
from rl_core.planning.scene_rules import scene_problems

_CHUNK = 64


@dataclass(frozen=True, slots=True)
class CountingReader:
    """Scenes 0 .. size-1 of a source; the answer is the number of objects.

    `extra` of a row holds the `objects` with shape, colour, material, place and radius.

    Raises:
        ValueError: The configured numbers contradict each other.
    """

    source: CountingSource

    def __post_init__(self) -> None:
        for problem in scene_problems("data source counting", self.source):
            raise ValueError(str(problem))

    @property
    def name(self) -> str:
        """Always "counting"."""
        return self.source.type

    def __len__(self) -> int:
        return self.source.size

    def __iter__(self) -> Iterator[Row | BadRow]:
        for start in range(0, self.source.size, _CHUNK):
            indices = range(start, min(start + _CHUNK, self.source.size))
            scenes = [draw_scene(self.source, index) for index in indices]
            images = render_scenes(scenes, image_size=self.source.image_size)
            for index, scene, pixels in zip(indices, scenes, images, strict=True):
                yield self._row(index, scene, Image.fromarray(pixels))

    def _row(self, index: int, scene: Scene, image: Image.Image) -> Row:
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
