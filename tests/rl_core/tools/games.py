"""Environments as a user writes them."""

import os
import random
import time
from pathlib import Path

from PIL import Image

WAYS = {"north": (0, -1), "south": (0, 1), "east": (1, 0), "west": (-1, 0)}


class Walk:
    """Fields of 3 x 3: from the middle to a corner, which the seed decides."""

    def __init__(self):
        self.start = random.random()

    def reset(self, sample, seed):
        self.seen = len(sample.pictures)
        self.at, self.moves = (1, 1), 0
        self.goal = random.Random(seed).choice([(0, 0), (0, 2), (2, 0), (2, 2)])
        self.luck = random.random()

    def move(self, sample, direction: str) -> list:
        """Walk one field.

        Args:
            direction: One of north, south, east, west.
        """
        if direction not in WAYS:
            raise ValueError("no such direction")
        self.at = tuple(min(2, max(0, at + by)) for at, by in zip(self.at, WAYS[direction], strict=True))
        self.moves += 1
        self.seen = 10 * self.seen + len(sample.pictures)
        view = Image.new("RGB", (28, 28), "black")
        view.paste("red", (9 * self.at[0], 9 * self.at[1], 9 * self.at[0] + 9, 9 * self.at[1] + 9))
        return [view, f"move {self.moves}, luck {self.start + self.luck + random.random():.6f}, saw {self.seen}"]

    def smell(self) -> str:
        """Find out where the goal is."""
        return f"{self.goal}"

    def rest(self, seconds: float) -> str:
        """Wait.

        Args:
            seconds: How long.
        """
        time.sleep(seconds)
        return "rested"

    def crash(self, file: str) -> str:
        """End the process, once.

        Args:
            file: A file that is made then.
        """
        if not Path(file).exists():
            Path(file).touch()
            os._exit(3)
        return "alive"

    def done(self):
        return self.at == self.goal

    def result(self):
        return {"reached": float(self.at == self.goal), "moves": self.moves}


class Guess:
    """A number from 1 to 9."""

    def reset(self, sample, seed):
        self.number = random.Random(seed).randint(1, 9)
        self.said = []

    def step(self, text):
        self.said.append(int(text))
        return "higher" if self.said[-1] < self.number else "lower"

    def done(self):
        return bool(self.said) and self.said[-1] == self.number

    def result(self):
        return {"found": float(self.done())}


class Neither:
    def reset(self, sample, seed): ...


class Heavy:
    """A state of 40 MB."""

    def reset(self, sample, seed):
        self.state = bytearray(40 * 2**20)

    def add(self) -> int:
        """Add one."""
        self.state[0] += 1
        return self.state[0]

    def result(self):
        return {"sum": self.state[0]}


class Endless:
    def reset(self, sample, seed): ...

    def step(self, text):
        return "go on"

    def result(self):
        return {"score": float("nan")}


class Painter:
    """Answers each turn by a picture."""

    def reset(self, sample, seed): ...

    def step(self, text):
        return Image.new("RGB", (56, 28), (len(text) % 256, 0, 0))


class Board:
    """Shows where it begins."""

    def reset(self, sample, seed):
        self.at = random.Random(seed).randint(0, 9)
        with (Path(sample.extra["home"]) / "resets").open("a") as out:
            out.write("one\n")
        view = Image.new("RGB", (56, 28), (20 * self.at, 0, 0))
        return [f"You are at {self.at}, luck {random.random():.6f}, of {len(sample.pictures)}.", view]

    def look(self) -> str:
        """Look where you are."""
        return f"still at {self.at}"


class Gallery:
    """Shows as many pictures as the row says, or fails."""

    def reset(self, sample, seed):
        return [Image.new("RGB", (56, 28), (n, 0, 0)) for n in range(sample.extra["pictures"])]

    def look(self) -> str:
        """Look."""
        return "nothing"


class Fickle(Walk):
    """Smells otherwise in each process."""

    def smell(self) -> str:
        """Find out where you are."""
        return f"{os.getpid()}"


class FickleAtFirst(Walk):
    """Begins otherwise in each process."""

    def reset(self, sample, seed):
        super().reset(sample, seed)
        return f"{os.getpid()}"
