"""Wall-clock seconds of a step's phases."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class PhaseTimer:
    """Adds up the seconds of named phases; time outside of all phases is `other`."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str, work: int = 0) -> Iterator[None]:
        """Measure the body of a `with` block, which has so much to do: responses to generate, or tokens of responses to
        compute; 0 if that is not known. Here only its seconds count."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - start

    def split(self, name: str, parts: Mapping[str, float]) -> None:
        """Split the seconds of a finished phase into `parts`; the phase keeps the time outside of all parts."""
        self._seconds[name] -= sum(parts.values())
        for part, seconds in parts.items():
            self._seconds[part] = self._seconds.get(part, 0.0) + seconds

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by phase up to now."""
        return self._seconds

    def result(self) -> dict[str, float]:
        """Seconds by phase, with `other` and `total`."""
        total = time.perf_counter() - self._start
        return self._seconds | {"other": total - sum(self._seconds.values()), "total": total}
