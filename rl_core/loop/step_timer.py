"""The timer of a training step, which can say at any moment how far the step is."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from typing_extensions import override

from rl_core.progress import TALLY, Now, Tally
from rl_core.timing import PhaseTimer
from rl_core.wording import duration

_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sync": "sync",
        "agreement": "log-probs",
        "generate": "generating",
        "reward_wait": "scoring",
        "old_log_probs": "log-probs",
        "reference": "log-probs of the reference",
        "values": "values",
        "update": "update",
        "generate_wait": "generating",
        "checkpoint_wait": "saving",
        "validate": "validation",
        "save": "saving",
    }
)
"""The phases of a step in their order, and what a person is shown for each."""

_GENERATING: Final = ("generate", "generate_wait")


@dataclass(frozen=True, slots=True)
class _Spent:
    """What a phase has taken: its time, and the tokens that were sampled or computed in it."""

    seconds: float = 0.0
    tokens: int = 0

    def __add__(self, other: "_Spent") -> "_Spent":
        return _Spent(self.seconds + other.seconds, self.tokens + other.tokens)


@dataclass(frozen=True, slots=True)
class _Phase:
    """The phase that runs, or that ran last."""

    name: str
    words: str
    work: int
    begun: float
    before: Tally
    is_over: bool = False

    def done(self) -> Tally:
        return TALLY.since(self.before)

    def spent(self) -> _Spent:
        done = self.done()
        tokens = done.sampled if self.name in _GENERATING else done.passed
        return _Spent(time.perf_counter() - self.begun, tokens)


class StepTimer(PhaseTimer):
    """Measures a training step, and estimates what is left of it: each phase takes as long for a token as it took in
    the step that had it last. Another thread may ask.

    Attributes:
        step: The number of the step.
        last_seconds: How long the step before took; None if that is not known.
    """

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step
        self.last_seconds: float | None = None
        self._expected: Mapping[str, _Spent] = {}
        self._before: Mapping[str, _Spent] = {}
        self._spent: dict[str, _Spent] = {}
        self._phase: _Phase | None = None
        self._share = 0.0

    def next(self, *, validates: bool, saves: bool) -> "StepTimer":
        """The timer of the next step, which begins now; these phases not every step has."""
        timer = StepTimer(self.step + 1)
        timer.last_seconds = self._elapsed if "update" in self._spent else None
        timer._before = {**self._before, **self._spent}
        is_due = {"validate": validates, "save": saves}
        names = [name for name in _WORDS if name in timer._before and is_due.get(name, True)]
        timer._expected = {name: timer._before[name] for name in names}
        return timer

    @override
    @contextmanager
    def phase(self, name: str, work: int = 0) -> Iterator[None]:
        phase = self._phase = _Phase(name, _WORDS[name], work, time.perf_counter(), TALLY.copy())
        try:
            with super().phase(name, work):
                yield
        finally:
            self._spent[name] = self._spent.get(name, _Spent()) + phase.spent()
            self._phase = replace(phase, is_over=True)

    @property
    def has_begun(self) -> bool:
        """Whether there is something of the step that its end alone would keep."""
        begun = {*self._spent} | ({self._phase.name} if self._phase else set())
        return bool(begun - {"sync", "validate"})

    def now(self) -> Now:
        """`step 4: generating, 57 of 128 responses, 812 tokens/s, 40 s left`: what is done, and the time that is left
        of the step where that is known."""
        phase = self._phase
        if phase is None:
            return Now()
        spent, left = phase.spent(), self._seconds_left(phase)
        words = [f"step {self.step}: {phase.words}"]
        if phase.work and not phase.is_over:
            words.append(_share_words(phase, spent))
        if spent.tokens and not phase.is_over:
            words.append(f"{spent.tokens / spent.seconds:,.0f} tokens/s")
        if left:
            words.append(f"{duration(left)} left")
        if left is not None:
            self._share = max(self._share, self._elapsed / (self._elapsed + left))
        return Now(", ".join(words), self._share)

    @property
    def _elapsed(self) -> float:
        return time.perf_counter() - self._start

    def _seconds_left(self, phase: _Phase) -> float | None:
        """Of the whole step; None if the steps before did not have its phase."""
        names = [*self._expected]
        if phase.name not in names:
            return None
        later = names[names.index(phase.name) + 1 :]
        return (0.0 if phase.is_over else self._left_of(phase)) + sum(map(self._seconds_of_later, later))

    def _left_of(self, phase: _Phase) -> float:
        expected, spent = self._expected[phase.name], phase.spent()
        earlier = self._spent.get(phase.name, _Spent())
        if not expected.tokens:
            return max(0.0, expected.seconds - earlier.seconds - spent.seconds)
        is_known = phase.work and phase.name not in _GENERATING
        tokens = phase.work if is_known else expected.tokens - earlier.tokens
        return max(0, tokens - spent.tokens) * expected.seconds / expected.tokens

    def _seconds_of_later(self, name: str) -> float:
        """What computes on tokens takes longer where more of them were sampled."""
        expected, sampled = self._expected[name], self._spent.get("generate", _Spent()).tokens
        seconds = expected.seconds
        if expected.tokens and sampled and (before := self._expected.get("generate", _Spent()).tokens):
            seconds *= sampled / before
        return max(0.0, seconds - self._spent.get(name, _Spent()).seconds)


def _share_words(phase: _Phase, spent: _Spent) -> str:
    if phase.name in _GENERATING:
        return f"{phase.done().responses} of {phase.work} responses"
    return f"{100 * min(1.0, spent.tokens / phase.work):.0f} %"
