"""The layout of a CLEVR-like scene, drawn from (scene_seed, index) alone."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rl_core.randomness import keyed_seed

SHAPES = ("sphere", "cube", "cylinder")
MATERIALS = ("rubber", "metal")
COLOURS = {
    "gray": (74, 74, 78),
    "red": (196, 38, 38),
    "blue": (40, 74, 214),
    "green": (24, 122, 32),
    "brown": (124, 70, 26),
    "purple": (136, 44, 190),
    "cyan": (22, 176, 186),
    "yellow": (240, 196, 16),
}
"""CLEVR's eight colours in sRGB, darkened where they were close to the light gray of the ground."""

_GAP = 0.015  # of the image side, between objects that must not overlap: an edge stays visible between them
_PLACES_TRIED = 64
_LAYOUTS_TRIED = 40


class SceneObject(NamedTuple):
    """One object.

    Attributes:
        shape: "sphere", "cube" or "cylinder".
        colour: A key of COLOURS.
        material: "rubber" is matte, "metal" has a highlight.
        x, y: Centre, as shares of the image side, y downwards.
        radius: Radius of the circle around the object's outline, as a share of the image side.
        yaw: Rotation about the upright axis in radians; never near 0 or pi/2, so that a cube shows three faces.
    """

    shape: str
    colour: str
    material: str
    x: float
    y: float
    radius: float
    yaw: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """Objects from the back to the front, the light's strength, and six numbers in [0, 1) that vary the ground."""

    objects: tuple[SceneObject, ...]
    light: float
    ground: tuple[float, ...]


def draw_scene(
    seed: int,
    index: int,
    *,
    counts: tuple[int, int],
    radii: tuple[float, float],
    max_overlap: float,
    lighting: tuple[float, float],
) -> Scene:
    """Scene number `index` of those with this seed.

    Args:
        seed: Seed of the scenes.
        index: Number of the scene.
        counts: Fewest and most objects.
        radii: Smallest and largest radius, as shares of the image side.
        max_overlap: Largest overlap of two objects, as a share of the smaller radius; with 0 they keep apart.
        lighting: Weakest and strongest light.

    Raises:
        ValueError: The objects find no room; the message says what to change.
    """
    # PCG64's uniform doubles are the only draw used: numpy keeps its bit streams, not its distributions, stable.
    generator = np.random.Generator(np.random.PCG64(keyed_seed(seed, "scene", index)))
    fewest, most = counts
    count = fewest + int(generator.random() * (most - fewest + 1))
    low, high = radii
    drawn = np.sort(low + (high - low) * generator.random(count))[::-1]
    centres = _place(drawn, max_overlap, generator)
    if centres is None:
        raise ValueError(
            f"data source counting: {count} objects of up to {drawn[0]:.2f} of the image side found no room in "
            f"{_LAYOUTS_TRIED} tries; lower max_objects ({most}) or object_size {radii}, "
            f"or raise max_overlap ({max_overlap})"
        )
    objects = [_dress(*centre, radius, generator) for centre, radius in zip(centres, drawn, strict=True)]
    dim, bright = lighting
    return Scene(
        objects=tuple(sorted(objects, key=lambda item: item.y)),
        light=dim + (bright - dim) * generator.random(),
        ground=tuple(generator.random(6).tolist()),
    )


def _place(radii: np.ndarray, max_overlap: float, generator: np.random.Generator) -> list[tuple[float, float]] | None:
    """Centres for radii that are sorted from large to small, so that large objects are placed first; None where no try
    finds room for all of them."""
    tries = (_try_layout(radii, max_overlap, generator) for _ in range(_LAYOUTS_TRIED))
    return next((centres for centres in tries if centres is not None), None)


def _try_layout(
    radii: np.ndarray, max_overlap: float, generator: np.random.Generator
) -> list[tuple[float, float]] | None:
    gap = 0.0 if max_overlap else _GAP
    placed = np.empty((0, 2))
    for number, radius in enumerate(radii):
        margin = min(radius + _GAP, 0.5)
        candidates = margin + (1 - 2 * margin) * generator.random((_PLACES_TRIED, 2))
        # Radii are sorted, so `radius` is the smaller one of each pair.
        reach = radii[:number] + radius * (1 - max_overlap) + gap
        distances = np.sqrt(np.sum((candidates[:, None] - placed[None]) ** 2, axis=2))
        free = np.flatnonzero(np.all(distances >= reach, axis=1))
        if not len(free):
            return None
        placed = np.vstack([placed, candidates[free[0]]])
    return [(float(x), float(y)) for x, y in placed]


def _dress(x: float, y: float, radius: float, generator: np.random.Generator) -> SceneObject:
    shape, colour, material, yaw = generator.random(4)
    return SceneObject(
        shape=SHAPES[int(shape * len(SHAPES))],
        colour=list(COLOURS)[int(colour * len(COLOURS))],
        material=MATERIALS[int(material * len(MATERIALS))],
        x=x,
        y=y,
        radius=float(radius),
        yaw=float((0.1 + 0.8 * yaw) * np.pi / 2),
    )
