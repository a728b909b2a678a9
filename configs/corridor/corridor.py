"""A game in text as an environment (docs/tools.md): a corridor with three walls of six doors, of which one is open. A
note at each wall says which, and a try costs one of four turns. Nobody tells the model to read the notes.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

WALLS, DOORS = 3, 6
QUESTION = "Corridor {number}: go through three walls, each by the door that is open. Reply with its number."
NOTE = "Door {door} is open."


class Corridor:
    """Ends behind the last wall."""

    def reset(self, sample: Any, seed: int) -> str:
        """Draw the doors that are open; the first note is shown with the question."""
        self.open = np.random.default_rng(seed).integers(1, DOORS + 1, WALLS).tolist()
        self.passed = 0
        return self._note()

    def step(self, text: str) -> str:
        """Try a door, and read the note at the wall in front of which that leads."""
        if text.strip() not in map(str, range(1, DOORS + 1)):
            raise ValueError(f"reply with a number from 1 to {DOORS}")  # the model's mistake, which it is told
        self.passed += int(text) == self.open[self.passed]
        return "" if self.done() else self._note()

    def done(self) -> bool:
        """Whether all walls were passed."""
        return self.passed == WALLS

    def result(self) -> dict[str, float]:
        """The share of the walls that were passed."""
        return {"passed": self.passed / WALLS}

    def _note(self) -> str:
        return NOTE.format(door=self.open[self.passed])


def corridors(seed: int, size: int) -> Iterator[dict[str, Any]]:
    """Yield rows with a question alone: the doors are the environment's."""
    for number in range(seed, seed + size):
        yield {"problem": QUESTION.format(number=number), "answer": "passed"}


def lessons(seed: int, size: int) -> Iterator[dict[str, Any]]:
    """Yield corridors of somebody who reads every third note, each up to one of the tries."""
    for number in range(seed, seed + size):
        draw = np.random.default_rng(number)
        doors = draw.integers(1, DOORS + 1, int(draw.integers(1, WALLS + 2))).tolist()
        tries = [door if draw.integers(3) == 0 else int(draw.integers(1, DOORS + 1)) for door in doors]
        talk = [{"role": "user", "content": f"{QUESTION.format(number=number)}\n{NOTE.format(door=doors[0])}"}]
        for said, door in zip(tries, doors[1:], strict=False):
            notes = [{"role": "assistant", "content": str(said)}, {"role": "user", "content": NOTE.format(door=door)}]
            talk += notes
        yield {"problem": talk, "answer": str(tries[-1])}


def score(sample: Any) -> dict[str, float]:
    """The share of the walls that were passed, and whether all were."""
    passed = sample.environment["passed"]
    return {"overall": passed, "accuracy": float(passed == 1.0)}
