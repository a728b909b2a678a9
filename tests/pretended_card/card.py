"""Processes on the pretended card: their environment, what they called, and what they left behind."""

import os
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.pretended_card.build import CARD

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Card:
    """A pretended card.

    Attributes:
        libraries: The folder in which it was built.
        state: A folder of its processes: memory that each of them has taken, and what each of them called.
    """

    libraries: Path
    state: Path

    def environment(
        self, *, cards: int = 1, gib: float = 79.1, is_undefined_after_wake: bool = False
    ) -> dict[str, str]:
        """The environment of a process on the card.

        Args:
            cards: How many of them the machine has.
            gib: Memory of each, in GiB.
            is_undefined_after_wake: Whether memory that is mapped again is filled with a pattern that stands for
                undefined content; otherwise it is zero.
        """
        shown = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        preloaded = [*sorted(self.libraries.glob("lib*.so*[0-9]")), self.libraries / CARD]
        return (
            shown
            | {
                "LD_PRELOAD": ":".join(map(str, preloaded)),
                "LD_LIBRARY_PATH": str(self.libraries),
                "TRITON_LIBCUDA_PATH": str(self.libraries),
                "PATH": f"{HERE / 'tools'}:{Path(sys.executable).parent}:{shown.get('PATH', '')}",
                "PRETENDED_CARD_STATE": str(self.state),
                "PRETENDED_CARDS": str(cards),
                "PRETENDED_CARD_GIB": str(gib),
            }
            | ({"PRETENDED_CARD_UNDEFINED": "1"} if is_undefined_after_wake else {})
        )

    def calls(self) -> dict[str, Counter[str]]:
        """What ended processes called, by kind: "kernel", "kernel in a graph", "graph", "wait of the host",
        "communicator" (NCCL's, at its start), and "not written" for functions that only answered with success."""
        found: dict[str, Counter[str]] = {}
        for path in self.state.glob("calls-*.tsv"):
            for line in path.read_text().splitlines():
                kind, times, name = line.split("\t")
                found.setdefault(kind, Counter())[name] += int(times)
        return found

    def kernels(self, pattern: str) -> int:
        """How often kernels whose name matches were launched, alone or in a graph."""
        calls = self.calls()
        names = calls.get("kernel", Counter()) + calls.get("kernel in a graph", Counter())
        return sum(times for name, times in names.items() if re.search(pattern, name))

    def left_out(self) -> Counter[str]:
        """The operations that were not computed, because they were too large or have no form for the host."""
        found: Counter[str] = Counter()
        for path in self.state.glob("left-out-*.tsv"):
            for line in path.read_text().splitlines():
                times, name = line.split("\t")
                found[name] += int(times)
        return found
