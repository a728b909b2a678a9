"""Renders CLEVR-like scenes: shaded spheres, cubes and cylinders with soft shadows on light ground."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rl_core.sources import scene_outlines
from rl_core.sources.scene_layout import COLOURS, SHAPES, Scene, SceneObject
from rl_core.sources.scene_outlines import Surface
from rl_core.types import Float32Array

# Towards the light, in camera coordinates: from the upper left, in front. Halfway to the viewer for the highlight.
_LIGHT = np.array([-0.5, 0.65, 0.57], np.float32)
_LIGHT = _LIGHT / np.sqrt(np.float32((_LIGHT**2).sum()))
_HALFWAY = _LIGHT + np.array([0, 0, 1], np.float32)
_HALFWAY = _HALFWAY / np.sqrt(np.float32((_HALFWAY**2).sum()))

_AMBIENT, _DIFFUSE = np.float32(0.45), np.float32(0.75)
_SHADOW_DEPTH = np.float32(0.45)
_WINDOW_PIXELS = 1 << 21  # in all windows that are rendered at once; bounds the memory of large images


@dataclass(frozen=True, kw_only=True, slots=True)
class _Windows:
    """Square windows around bodies. `left`, `top`: [N] pixels; `u`, `v`: [N, S, S] in radii; `pixels`: [N, 1, 1]."""

    left: npt.NDArray[np.int64]
    top: npt.NDArray[np.int64]
    u: Float32Array
    v: Float32Array
    pixels: Float32Array


def render_scenes(scenes: Sequence[Scene], *, image_size: int) -> Iterator[npt.NDArray[np.uint8]]:
    """An image for each scene, in order: uint8 [image_size, image_size, 3]. The pixels of a scene depend on that scene
    alone."""
    for batch in _batches(scenes, image_size):
        yield from _render_batch(batch, image_size)


def _batches(scenes: Sequence[Scene], side: int) -> Iterator[Sequence[Scene]]:
    """Consecutive scenes, split so that the windows of each batch stay within the memory bound."""
    objects = [item for scene in scenes for item in scene.objects]
    largest = max((item.radius for item in objects), default=0.0)
    crowd = max((len(scene.objects) for scene in scenes), default=0)
    pixels = side * side + crowd * (2 * largest * side + 4) ** 2
    count = max(1, int(_WINDOW_PIXELS / 8 / pixels))
    for start in range(0, len(scenes), count):
        yield scenes[start : start + count]


def _render_batch(scenes: Sequence[Scene], side: int) -> npt.NDArray[np.uint8]:
    """uint8 [B, side, side, 3]."""
    objects = [item for scene in scenes for item in scene.objects]
    owner = [number for number, scene in enumerate(scenes) for _ in scene.objects]
    canvas = _ground(scenes, side)
    if objects:
        # With this padding every window lies inside the canvas.
        pad = int(2 * max(item.radius for item in objects) * side) + 4
        canvas = np.pad(canvas, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        _paint_shadows(canvas, objects, owner, side=side, pad=pad)
        _paint_bodies(canvas, objects, owner, light=[scenes[number].light for number in owner], side=side, pad=pad)
        canvas = canvas[:, pad:-pad, pad:-pad]
    return (np.clip(canvas, 0, 1) * np.float32(255) + np.float32(0.5)).astype(np.uint8)


def _ground(scenes: Sequence[Scene], side: int) -> Float32Array:
    """A light gray plane, brighter where the light falls, [B, side, side, 3]."""
    ramp = ((np.arange(side, dtype=np.float32) + np.float32(0.5)) / np.float32(side))[None]
    variation = np.array([scene.ground for scene in scenes], np.float32)[:, :, None]
    light = np.array([scene.light for scene in scenes], np.float32)[:, None, None]
    across = ramp - (np.float32(0.2) + np.float32(0.6) * variation[:, 0])
    along = ramp - (np.float32(0.2) + np.float32(0.5) * variation[:, 1])
    falloff = np.float32(0.1) + np.float32(0.12) * variation[:, 2]
    distance = (across * across)[:, None, :] + (along * along)[:, :, None]
    brightness = (np.float32(0.84) - falloff[:, :, None] * distance) * (np.float32(0.86) + np.float32(0.14) * light)
    tint = np.float32(1) + np.float32(0.03) * (variation[:, 3:6, 0] - np.float32(0.5))
    ground: Float32Array = brightness[..., None] * tint[:, None, None, :]
    return ground


def _paint_shadows(
    canvas: Float32Array, objects: Sequence[SceneObject], owner: Sequence[int], *, side: int, pad: int
) -> None:
    """Darken the ground behind and right of every object, away from the light."""
    windows = _windows(objects, side=side, reach=1.2, right=0.3, down=0.68)
    across, along = windows.u / np.float32(1.2), windows.v / np.float32(0.62)
    fading = np.maximum(1 - across * across - along * along, 0)
    kept = 1 - _SHADOW_DEPTH * fading * (2 - fading)
    size = kept.shape[1]
    for number, scene in enumerate(owner):
        top, left = windows.top[number] + pad, windows.left[number] + pad
        canvas[scene, top : top + size, left : left + size] *= kept[number, :, :, None]


def _paint_bodies(
    canvas: Float32Array,
    objects: Sequence[SceneObject],
    owner: Sequence[int],
    *,
    light: Sequence[float],
    side: int,
    pad: int,
) -> None:
    """Lay every object over the canvas, in the given order: from the back to the front."""
    windows = _windows(objects, side=side, reach=1.0)
    coverage, colours = _shade_all(objects, windows, np.array(light, np.float32))
    size = coverage.shape[1]
    for number, scene in enumerate(owner):
        top, left = windows.top[number] + pad, windows.left[number] + pad
        patch = canvas[scene, top : top + size, left : left + size]
        patch += coverage[number, :, :, None] * (colours[number] - patch)


def _windows(
    objects: Sequence[SceneObject], *, side: int, reach: float, right: float = 0.0, down: float = 0.0
) -> _Windows:
    """Windows that show `reach` radii around each object, or around a point beside it, `right` and `down` in radii;
    one size for all, so that they stack."""
    radius = np.array([item.radius * side for item in objects], np.float32)
    x = np.array([(item.x + right * item.radius) * side for item in objects], np.float32)
    y = np.array([(item.y + down * item.radius) * side for item in objects], np.float32)
    half = int(np.ceil(radius.max() * reach)) + 1
    left, top = (np.floor(centre).astype(np.int64) - half for centre in (x, y))
    steps = np.arange(2 * half + 1, dtype=np.float32) + np.float32(0.5)
    u = (left[:, None] + steps - x[:, None]).astype(np.float32) / radius[:, None]
    v = (y[:, None] - top[:, None] - steps).astype(np.float32) / radius[:, None]
    shape = (len(objects), len(steps), len(steps))
    return _Windows(
        left=left,
        top=top,
        u=np.broadcast_to(u[:, None, :], shape),
        v=np.broadcast_to(v[:, :, None], shape),
        pixels=radius[:, None, None],
    )


def _shade_all(
    objects: Sequence[SceneObject], windows: _Windows, light: Float32Array
) -> tuple[Float32Array, Float32Array]:
    """Coverage [N, S, S] and colour [N, S, S, 3] of every object's window, one shape at a time."""
    coverage = np.zeros(windows.u.shape, np.float32)
    colours = np.zeros((*windows.u.shape, 3), np.float32)
    for shape in SHAPES:
        chosen = [number for number, item in enumerate(objects) if item.shape == shape]
        if not chosen:
            continue
        surface = _outline(shape, [objects[number] for number in chosen], windows, chosen)
        coverage[chosen] = surface.coverage
        colours[chosen] = _shade([objects[number] for number in chosen], surface, light[chosen])
    return coverage, colours


def _outline(shape: str, objects: Sequence[SceneObject], windows: _Windows, chosen: list[int]) -> Surface:
    u, v, pixels = windows.u[chosen], windows.v[chosen], windows.pixels[chosen]
    match shape:
        case "sphere":
            return scene_outlines.sphere(u, v, pixels=pixels)
        case "cylinder":
            return scene_outlines.cylinder(u, v, pixels=pixels)
        case _:
            turns = np.array([(math.sin(item.yaw), math.cos(item.yaw)) for item in objects], np.float32)
            sine, cosine = turns[:, 0, None, None], turns[:, 1, None, None]
            return scene_outlines.cube(u, v, pixels=pixels, sine=sine, cosine=cosine)


def _shade(objects: Sequence[SceneObject], surface: Surface, light: Float32Array) -> Float32Array:
    """Blinn-Phong (Blinn, "Models of light reflection", 1977) with one lamp, [N, S, S, 3]."""
    base = np.array([COLOURS[item.colour] for item in objects], np.float32) / np.float32(255)
    shiny = np.array([item.material == "metal" for item in objects])[:, None, None]
    strength = light[:, None, None]
    diffuse = np.maximum(_dot(surface.normal, _LIGHT), 0)
    brightness = _AMBIENT + _DIFFUSE * diffuse * strength
    gleam = _power_of_two(np.maximum(_dot(surface.normal, _HALFWAY), 0), 5)
    highlight = gleam * strength * np.where(shiny, np.float32(0.85), np.float32(0.12))
    colours: Float32Array = brightness[..., None] * base[:, None, None, :] + highlight[..., None]
    return colours


def _dot(normal: tuple[Float32Array, ...], direction: Float32Array) -> Float32Array:
    product: Float32Array = normal[0] * direction[0] + normal[1] * direction[1] + normal[2] * direction[2]
    return product


def _power_of_two(value: Float32Array, doublings: int) -> Float32Array:
    """value ** (2 ** doublings), by squaring, which rounds the same everywhere."""
    for _ in range(doublings):
        value = value * value
    return value
