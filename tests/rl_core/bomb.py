"""A pickle that runs code when it is opened, and shows that it did."""

from pathlib import Path


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._target,)
