"""Numbers of a counting source that contradict each other."""

from collections.abc import Iterator

from rl_core.config.data import CountingSource
from rl_core.planning.problem import Problem

_IMAGE_PLACE = "<image>"
_MOST_LIGHT = 2.0


def scene_problems(key: str, source: CountingSource) -> Iterator[Problem]:
    """Every such contradiction of the source that stands at `key`."""
    if source.min_objects > source.max_objects:
        yield Problem(
            where=f"{key}.min_objects",
            what=f"{source.min_objects} is above max_objects {source.max_objects}",
            fix="lower it, or raise max_objects",
        )
    low, high = source.object_size
    if not 0.0 < low <= high < 0.5:
        yield Problem(
            where=f"{key}.object_size",
            what=f"{list(source.object_size)} is no range of radii",
            fix="give the smallest and the largest, with 0 < both < 0.5",
        )
    dim, bright = source.lighting
    if not 0.0 < dim <= bright <= _MOST_LIGHT:
        yield Problem(
            where=f"{key}.lighting",
            what=f"{list(source.lighting)} is no range of light",
            fix=f"give the weakest and the strongest, with 0 < both <= {_MOST_LIGHT:g}",
        )
    if source.question.count(_IMAGE_PLACE) != 1:
        yield Problem(
            where=f"{key}.question",
            what=f"{source.question!r} does not have one {_IMAGE_PLACE}",
            fix="mark the one place of the scene",
        )
