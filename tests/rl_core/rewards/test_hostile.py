"""Rewards that do harm, in real processes: each costs the samples that it does it on, and leaves nothing behind."""

import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from rl_core.config.reward import RewardConfig
from rl_core.rewards.pool import RewardPool
from rl_core.types import Score
from tests.processes import living
from tests.rl_core.rewards.samples import make_sample, own

FILE = Path(__file__).with_name("hostile.py")
PATIENCE = 60.0
LIMITS = {"timeout_seconds": 2.0, "load_timeout_seconds": 20.0, "memory_limit_gib": 1.0}
DIED = "the process died in the call: "

COSTS = {
    "leaves_with_0": DIED + "exit code 0",
    "kills_itself": DIED + "signal SIGKILL",
    "stops_itself": "no result within reward.timeout_seconds = 2",
    "kills_its_parent": DIED + "signal SIGKILL to its parent process",
    "kills_its_group": DIED + "signal SIGKILL",
    "kills_its_parents_group": DIED + "signal SIGKILL to its parent process",
    "interrupts_its_group": "KeyboardInterrupt: ",
    "closes_what_is_open": DIED + "exit code 1",
    "exits": "SystemExit: 3 (hostile.py line ",
    "raises_what_cannot_be_said": "Speechless, whose text cannot be made",
    "returns_what_exits": "SystemExit: from a result (hostile.py line ",
    "writes_where_it_may_not": DIED + "it sent something else than a report",
    "writes_nested_lists_where_it_may_not": DIED + "it sent something else than a report",
    "kills_its_parent_and_leaves_children": DIED + "signal SIGKILL to its parent process",
}
"""What the reason begins with."""

COSTS_NOTHING = (
    "asks_its_parent_to_end",
    "stops_its_parent",
    "forks_and_returns_twice",
    "leaves_a_child",
    "leaves_a_stubborn_child",
    "leaves_a_daemon",
    "leaves_an_alarm",
    "leaves_a_thread",
)


@dataclass(frozen=True)
class Aftermath:
    """What the functions came to, and the processes that they left, once the pool was closed."""

    scores: dict[str, list[Score]]
    left: list[int]


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory) -> Aftermath:
    log = tmp_path_factory.mktemp("hostile") / "pids"
    functions = [*COSTS, *COSTS_NOTHING]
    by_source = {name: {"function": f"{FILE}:{name}"} for name in functions}
    with RewardPool(RewardConfig(by_source=by_source, workers=2, **LIMITS)) as pool:
        calm = [make_sample("later", source=name) for name in functions]
        assert pool.score_all(calm) == [Score(components={"overall": 1.0})] * len(calm)
        asked = [
            make_sample(response, str(log), source=name) for name in functions for response in ("now", "later", "now")
        ]
        answers = iter(pool.score_all(asked))
        scores = {name: [next(answers) for _ in range(3)] for name in functions}
        assert pool.score_all(calm) == [Score(components={"overall": 1.0})] * len(calm), "it goes on"
        began = time.monotonic()
    assert time.monotonic() - began < PATIENCE
    return Aftermath(scores, [int(line) for line in log.read_text().split()])


@pytest.mark.parametrize("name", COSTS)
def test_harm_costs_the_samples_that_it_is_done_on(aftermath, name):
    first, between, last = aftermath.scores[name]
    for score in (first, last):
        assert score.components == {}
        assert score.error.startswith(COSTS[name])
    assert between == Score(components={"overall": 1.0})


@pytest.mark.parametrize("name", COSTS_NOTHING)
def test_odd_but_harmless_rewards_cost_no_score(aftermath, name):
    assert aftermath.scores[name] == [Score(components={"overall": 1.0})] * 3


def test_processes_that_a_reward_starts_end_with_its_own(aftermath):
    assert len(aftermath.left) >= 10
    assert living(aftermath.left) == []


def pool_of(function: str, **settings) -> RewardPool:
    return RewardPool(RewardConfig(**{"function": function, "workers": 2} | LIMITS | settings))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import time; time.sleep(600)", "its import took longer than reward.load_timeout_seconds = 2"),
        ("import os; os._exit(0)", "its import ended the process: exit code 0"),
        (
            "import os, time; os.kill(os.getppid(), 9); time.sleep(60)",
            "its import ended the process: signal SIGKILL to its parent process",
        ),
        ("import sys; sys.exit('no model server')", "SystemExit: no model server (own.py line 1)"),
    ],
)
def test_an_import_that_does_not_end_well_is_named_and_costs_its_own_samples(tmp_path, text, why):
    function = own(tmp_path, f"{text}\ndef score(sample): ...\n")
    limits = LIMITS | {"load_timeout_seconds": 2.0}
    config = RewardConfig(function="count", by_source={"bad": {"function": function}}, **limits)
    with RewardPool(config) as pool:
        samples = [make_sample("<answer>3</answer>"), *[make_sample("x", source="bad")] * 20]
        good, *bad = pool.score_all(samples)
    assert good.overall == 1.0
    assert {score.error for score in bad} == {f"could not load {function}: {why}"}


SLOW_START = """
import time
from pathlib import Path
model = None

def score(sample):
    global model
    if model is None:
        time.sleep(float(sample.ground_truth))
        model = 1.0
    if sample.response == "hang":
        time.sleep(600)
    return model
"""


def test_a_first_call_may_take_long_and_a_later_one_may_not(tmp_path):
    with pool_of(own(tmp_path, SLOW_START), timeout_seconds=1.0) as pool:
        responses = ["fine", "fine", "fine", "hang", "fine", "fine"]
        scores = pool.score_all([make_sample(response, "1.5") for response in responses])
    hanging = Score(components={}, error="no result within reward.timeout_seconds = 1")
    fine = Score(components={"overall": 1.0})
    assert scores == [hanging if response == "hang" else fine for response in responses]


def test_a_first_call_that_hangs_is_ended_when_another_shows_that_none_needs_long(tmp_path):
    with pool_of(own(tmp_path, SLOW_START), timeout_seconds=0.5, load_timeout_seconds=1000.0) as pool:
        hanging, fine = pool.score_all([make_sample("hang", "0"), make_sample("fine", "0")])
    assert (hanging.error, fine.overall) == ("no result within reward.timeout_seconds = 0.5", 1.0)


def test_an_interrupt_means_the_same_in_a_run_that_a_shell_has_started_in_the_background():
    """Such a run ignores SIGINT, and so would all that it starts."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pool_of(f"{FILE}:interrupts_its_group") as pool:
            (score,) = pool.score_all([make_sample("now")])
    finally:
        signal.signal(signal.SIGINT, before)
    assert score.error is not None and score.error.startswith(COSTS["interrupts_its_group"])
