"""A step says what it does, how much of it is done, and what the steps before say about the rest."""

from collections.abc import Iterator

import pytest

from rl_core.loop.step_timer import StepTimer
from rl_core.progress import TALLY, Now


class Clock:
    """A clock that is put forward by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def perf_counter(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    for module in ("rl_core.timing", "rl_core.loop.step_timer"):
        monkeypatch.setattr(f"{module}.time", clock)
    return clock


@pytest.fixture(autouse=True)
def _counts_are_put_back() -> Iterator[None]:
    before = TALLY.copy()
    yield
    TALLY.add(before.since(TALLY))


def generate(clock: Clock, *, tokens: int, responses: int = 0, seconds: float = 0.0) -> None:
    clock.seconds += seconds
    TALLY.sampled += tokens
    TALLY.responses += responses


def compute(clock: Clock, *, tokens: int, seconds: float) -> None:
    clock.seconds += seconds
    TALLY.passed += tokens


def a_whole_step(timer: StepTimer, clock: Clock) -> None:
    """10 s of 1000 tokens, 2 s of scoring, 20 s of 1000 tokens."""
    with timer.phase("sync"):
        clock.seconds += 1
    with timer.phase("generate", 8):
        generate(clock, tokens=1000, responses=8, seconds=10)
    with timer.phase("reward_wait"):
        clock.seconds += 2
    with timer.phase("update", 1000):
        compute(clock, tokens=1000, seconds=20)


def first_step(clock: Clock) -> StepTimer:
    return StepTimer(0).next(validates=False, saves=False)


def test_the_first_step_says_what_is_done_and_nothing_of_the_time(clock):
    timer = first_step(clock)
    assert timer.now() == Now()
    with timer.phase("generate", 8):
        generate(clock, tokens=300, responses=2, seconds=3)
        assert timer.now() == Now("step 1: generating, 2 of 8 responses, 100 tokens/s")
    with timer.phase("reward_wait"):
        assert timer.now() == Now("step 1: scoring")
    with timer.phase("update", 4000):
        compute(clock, tokens=1000, seconds=4)
        assert timer.now() == Now("step 1: update, 25 %, 250 tokens/s")
    assert timer.last_seconds is None


def test_the_remaining_time_follows_from_the_last_steps_seconds_a_token(clock):
    first = first_step(clock)
    a_whole_step(first, clock)
    timer = first.next(validates=False, saves=False)
    assert timer.last_seconds == 33
    with timer.phase("sync"):
        clock.seconds += 1
        assert timer.now().words == "step 2: sync, 32 s left"
    with timer.phase("generate", 8):
        generate(clock, tokens=500, responses=1, seconds=5)
        assert timer.now().words == "step 2: generating, 1 of 8 responses, 100 tokens/s, 27 s left"
        assert timer.now().units == pytest.approx(6 / (6 + 27))
        generate(clock, tokens=1500, responses=7, seconds=15)
    share = timer.now().units
    with timer.phase("reference"):
        assert timer.now() == Now("step 2: log-probs of the reference", share), "the step before had no such phase"
    with timer.phase("reward_wait"):
        assert timer.now().words == "step 2: scoring, 42 s left", "twice as many tokens are computed for twice as long"
        clock.seconds += 5
    with timer.phase("update", 2000):
        compute(clock, tokens=500, seconds=9)
        assert timer.now().words == "step 2: update, 25 %, 56 tokens/s, 30 s left"
        compute(clock, tokens=1500, seconds=100)
        assert timer.now().words == "step 2: update, 100 %, 18 tokens/s"


def test_a_draw_that_is_repeated_takes_what_the_first_one_left(clock):
    first = first_step(clock)
    a_whole_step(first, clock)
    timer = first.next(validates=False, saves=False)
    with timer.phase("generate", 4):
        generate(clock, tokens=400, responses=4, seconds=4)
    with timer.phase("generate", 4):
        generate(clock, tokens=100, seconds=1)
        assert timer.now().words == "step 2: generating, 0 of 4 responses, 100 tokens/s, 15 s left"


def test_validation_and_save_count_in_the_steps_that_have_them(clock):
    first = first_step(clock)
    a_whole_step(first, clock)
    with first.phase("validate"):
        clock.seconds += 50
    with first.phase("save"):
        clock.seconds += 7
    for validates, saves, seconds in ((False, False, 33), (True, False, 83), (True, True, 90)):
        timer = first.next(validates=validates, saves=saves)
        with timer.phase("sync"):
            assert timer._seconds_left(timer._phase) == seconds
    without = first.next(validates=False, saves=False)
    a_whole_step(without, clock)
    with without.next(validates=True, saves=False).phase("sync"):
        pass
    timer = without.next(validates=True, saves=False)
    with timer.phase("validate"):
        assert timer.now().words == "step 3: validation, 50 s left", "it is remembered over a step that had none"


def test_a_step_has_begun_with_its_first_response(clock):
    before = StepTimer(0)
    assert not before.has_begun
    with before.phase("validate"):
        assert not before.has_begun
    timer = before.next(validates=False, saves=False)
    assert timer.last_seconds is None, "there was no step"
    with timer.phase("sync"):
        assert not timer.has_begun
    with timer.phase("generate"):
        assert timer.has_begun
    with timer.phase("validate"):
        assert timer.has_begun


def test_the_records_of_a_step_have_no_more_than_its_seconds(clock):
    timer = first_step(clock)
    a_whole_step(timer, clock)
    seconds = timer.result()
    assert seconds == {"sync": 1, "generate": 10, "reward_wait": 2, "update": 20, "other": 0, "total": 33}
