"""Renders CLEVR-like scenes: shaded spheres, cubes and cylinders with soft shadows on light ground.

The bodies have outlines and normals in closed form, for an orthographic camera. Coordinates of a body are in units of
its radius: u [W] to the right, v [H, 1] up, the third axis towards the camera. All arrays are float32. Only operations
that round the same for every array shape and on every machine are used (no power, no sum over an axis).
"""

import math
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import numpy.typing as npt

from rl_core.sources.scene_layout import COLOURS, Scene, SceneObject
from rl_core.types import Float32Array

# Towards the light, in camera coordinates: from the upper left, in front. Halfway to the viewer for the highlight.
_LIGHT = np.array([-0.5, 0.65, 0.57], np.float32)
_LIGHT = _LIGHT / np.sqrt(np.float32((_LIGHT**2).sum()))
_HALFWAY = _LIGHT + np.array([0, 0, 1], np.float32)
_HALFWAY = _HALFWAY / np.sqrt(np.float32((_HALFWAY**2).sum()))

_AMBIENT, _DIFFUSE = np.float32(0.45), np.float32(0.75)
_SHADOW_DEPTH = np.float32(0.45)

# The camera looks down at 32 degrees.
SINE, COSINE = np.float32(0.53), np.float32(0.848)

# Sizes that bring each projected outline just inside the unit circle.
_CUBE_HALF_SIDE = np.float32(0.6)
_CYLINDER_RADIUS, _CYLINDER_HALF_HEIGHT = np.float32(0.74), np.float32(0.64)

_TINY = np.float32(1e-6)


@dataclass(frozen=True, kw_only=True, slots=True)
class Surface:
    """The visible surface of a body in its window.

    Attributes:
        coverage: [H, W], the share of each pixel that lies inside the outline.
        normal: The parts to the right, up and towards the camera, each of a shape that broadcasts to [H, W].
    """

    coverage: Float32Array
    normal: tuple[Float32Array, Float32Array, Float32Array]


def sphere(u: Float32Array, v: Float32Array, *, pixels: np.float32) -> Surface:
    """Unit sphere. `pixels`: per unit, which determines the width of the smooth edge."""
    squared = u * u + v * v
    towards = np.sqrt(np.maximum(1 - squared, 0))
    return Surface(coverage=_cover(1 - np.sqrt(squared), pixels), normal=(u, v, towards))


def cylinder(u: Float32Array, v: Float32Array, *, pixels: np.float32) -> Surface:
    """Upright cylinder: a band closed by half an ellipse below and its lid, a whole ellipse, above."""
    across = u / _CYLINDER_RADIUS
    arc = np.sqrt(np.maximum(1 - across * across, 0))
    lid_height, lid_depth = COSINE * _CYLINDER_HALF_HEIGHT, SINE * _CYLINDER_RADIUS
    # At the sides the ellipse stands upright; an unbounded slope would draw a hair above and below each edge.
    slope = SINE * across / np.maximum(arc, np.float32(0.3))
    above = (lid_height + lid_depth * arc - np.abs(v)) / np.sqrt(1 + slope * slope)
    inside = np.minimum(_CYLINDER_RADIUS - np.abs(u), above)

    along = (v - lid_height) / lid_depth
    steepness = 2 * np.sqrt((across / _CYLINDER_RADIUS) ** 2 + (along / lid_depth) ** 2)
    lid = _cover((1 - across * across - along * along) / np.maximum(steepness, _TINY), pixels)
    side = 1 - lid
    normal = (side * across, lid * COSINE - side * SINE * arc, lid * SINE + side * COSINE * arc)
    return Surface(coverage=_cover(inside, pixels), normal=normal)


def cube(u: Float32Array, v: Float32Array, *, pixels: np.float32, yaw: float) -> Surface:
    """Upright cube, turned by `yaw` about the upright axis: the ray of each pixel is intersected with three pairs of
    planes."""
    sine, cosine, zero = np.float32(math.sin(yaw)), np.float32(math.cos(yaw)), np.float32(0)
    # Outward normals of the three visible faces: right, up and towards the camera.
    axes = [
        (-cosine, -SINE * sine, COSINE * sine),
        (sine, -SINE * cosine, COSINE * cosine),
        (zero, COSINE, SINE),
    ]
    # A pixel's ray is inside pair i between depths leave[i] - thickness[i] and leave[i], the larger being nearer.
    leave: list[Float32Array] = [(-axis[0] * u - axis[1] * v + _CUBE_HALF_SIDE) / axis[2] for axis in axes]
    thickness = [(_CUBE_HALF_SIDE + _CUBE_HALF_SIDE) / axis[2] for axis in axes]
    inside: Float32Array = np.full_like(u, np.inf)
    shares: list[Float32Array] = [np.ones_like(u) for _ in axes]
    for i, j in permutations(range(3), 2):
        slope = _difference_slope(axes[i], axes[j])
        inside = np.minimum(inside, (leave[i] - leave[j] + thickness[j]) / slope)
        shares[i] = shares[i] * _cover((leave[j] - leave[i]) / slope, pixels)
    total = np.maximum(shares[0] + shares[1] + shares[2], _TINY)
    x, y, z = (sum(share * axis[part] for share, axis in zip(shares, axes, strict=True)) / total for part in range(3))
    return Surface(coverage=_cover(inside, pixels), normal=(x, y, z))


def _difference_slope(first: tuple[np.float32, ...], second: tuple[np.float32, ...]) -> np.float32:
    """Steepness over the image of the difference of two planes' depths."""
    across = first[0] / first[2] - second[0] / second[2]
    along = first[1] / first[2] - second[1] / second[2]
    slope: np.float32 = np.sqrt(across * across + along * along)
    return slope


def _cover(inside: Float32Array, pixels: np.float32) -> Float32Array:
    """Share of a pixel inside an edge at signed distance `inside`, in units of the body."""
    return np.clip(inside * pixels + np.float32(0.5), 0, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Window:
    """A part of the image. `patch`: a view of it, [H, W, 3]; `u`: [W] and `v`: [H, 1], coordinates in radii of an
    object; `pixels`: in a radius."""

    patch: Float32Array
    u: Float32Array
    v: Float32Array
    pixels: np.float32


def render_scene(scene: Scene, *, image_size: int) -> npt.NDArray[np.uint8]:
    """uint8 [image_size, image_size, 3]."""
    canvas = _ground(scene, image_size)
    for item in scene.objects:
        _paint_shadow(_window(canvas, item, reach=1.2, right=0.3, down=0.68))
    for item in scene.objects:  # from the back to the front
        _paint_body(_window(canvas, item, reach=1.0), item, np.float32(scene.light))
    return (np.clip(canvas, 0, 1) * np.float32(255) + np.float32(0.5)).astype(np.uint8)


def _ground(scene: Scene, side: int) -> Float32Array:
    """A light gray plane, brighter where the light falls, [side, side, 3]."""
    ramp = (np.arange(side, dtype=np.float32) + np.float32(0.5)) / np.float32(side)
    variation = np.array(scene.ground, np.float32)
    across = ramp - (np.float32(0.2) + np.float32(0.6) * variation[0])
    along = ramp - (np.float32(0.2) + np.float32(0.5) * variation[1])
    falloff = np.float32(0.1) + np.float32(0.12) * variation[2]
    distance = across * across + (along * along)[:, None]
    strength = np.float32(0.86) + np.float32(0.14) * np.float32(scene.light)
    tint = np.float32(1) + np.float32(0.03) * (variation[3:6] - np.float32(0.5))
    ground: Float32Array = ((np.float32(0.84) - falloff * distance) * strength)[..., None] * tint
    return ground


def _window(canvas: Float32Array, item: SceneObject, *, reach: float, right: float = 0.0, down: float = 0.0) -> _Window:
    """What of the canvas shows `reach` radii around an object, or around a point beside it, `right` and `down` in
    radii."""
    side = len(canvas)
    radius = np.float32(item.radius * side)
    x, y = np.float32((item.x + right * item.radius) * side), np.float32((item.y + down * item.radius) * side)
    half = math.ceil(radius * reach) + 1
    columns, rows = (
        np.arange(max(math.floor(centre) - half, 0), min(math.floor(centre) + half + 1, side)) for centre in (x, y)
    )
    return _Window(
        patch=canvas[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1],
        u=(columns + 0.5 - x).astype(np.float32) / radius,
        v=(y - (rows + 0.5)).astype(np.float32)[:, None] / radius,
        pixels=radius,
    )


def _paint_shadow(window: _Window) -> None:
    """Darken the ground behind and right of an object, away from the light."""
    across, along = window.u / np.float32(1.2), window.v / np.float32(0.62)
    fading = np.maximum(1 - across * across - along * along, 0)
    window.patch[...] *= (1 - _SHADOW_DEPTH * fading * (2 - fading))[..., None]


def _paint_body(window: _Window, item: SceneObject, light: np.float32) -> None:
    match item.shape:
        case "sphere":
            surface = sphere(window.u, window.v, pixels=window.pixels)
        case "cylinder":
            surface = cylinder(window.u, window.v, pixels=window.pixels)
        case _:
            surface = cube(window.u, window.v, pixels=window.pixels, yaw=item.yaw)
    window.patch[...] += surface.coverage[..., None] * (_shade(item, surface, light) - window.patch)


def _shade(item: SceneObject, surface: Surface, light: np.float32) -> Float32Array:
    """Blinn-Phong (Blinn, "Models of light reflection", 1977) with one lamp, [H, W, 3]."""
    base = np.array(COLOURS[item.colour], np.float32) / np.float32(255)
    brightness = _AMBIENT + _DIFFUSE * np.maximum(_dot(surface.normal, _LIGHT), 0) * light
    gleam = np.maximum(_dot(surface.normal, _HALFWAY), 0)
    for _ in range(5):  # to the power of 32, by squaring, which rounds the same everywhere
        gleam = gleam * gleam
    highlight = gleam * light * np.float32(0.85 if item.material == "metal" else 0.12)
    colours: Float32Array = brightness[..., None] * base + highlight[..., None]
    return colours


def _dot(normal: tuple[Float32Array, ...], direction: Float32Array) -> Float32Array:
    product: Float32Array = normal[0] * direction[0] + normal[1] * direction[1] + normal[2] * direction[2]
    return product
