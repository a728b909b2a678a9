"""Outlines and surface normals of a scene's bodies, in closed form, for an orthographic camera.

Coordinates of a body are in units of its radius: u [W] to the right, v [H, 1] up, the third axis towards the camera.
All arrays are float32. Only operations that round the same for every array shape and on every machine are used (no
power, no sum over an axis).
"""

import math
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from rl_core.types import Float32Array

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
