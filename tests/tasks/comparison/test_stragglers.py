"""Which seeds stayed behind, and what their metrics say about it."""

from dataclasses import replace
from pathlib import Path

import pytest

from rl_core.records.metrics_log import RunLogs
from tasks.comparison.groups import RunGroup, group_runs
from tasks.comparison.stragglers import stragglers, what_metrics_show
from tests.tasks.finished_run import finish_run


def group_of(folder: Path, *right: int, entropy: float = 0.4) -> RunGroup:
    """A group with a run for each number of right answers of 20, seeds from 1."""
    runs = []
    for seed, number in enumerate(right, start=1):
        run = finish_run(folder, f"seed={seed}", base="-" * 20, trained="+" * number + "-" * (20 - number))
        RunLogs(run).log_step(3, {"actor/entropy": entropy / seed})
        runs.append(run)
    return group_runs([], {"group": runs})[0]


def test_a_seed_far_below_the_median_stayed_behind(tmp_path: Path) -> None:
    (behind,) = stragglers(group_of(tmp_path, 18, 13, 20, 16, 19), "greedy")
    assert (behind.seed, behind.accuracy) == (2, 0.65)
    assert "entropy 0.20 nats after a quarter of the steps (others 0.12)" in behind.cause


@pytest.mark.parametrize("right", [(18,), (18, 16), (18, 16, 19), (20, 20, 20)])
def test_a_seed_within_a_tenth_of_the_median_did_not(right: tuple[int, ...], tmp_path: Path) -> None:
    assert stragglers(group_of(tmp_path, *right), "greedy") == []


def test_a_run_that_did_not_finish_stayed_behind_with_its_error(tmp_path: Path) -> None:
    group = replace(group_of(tmp_path, 18, 18), failures={3: "ValueError: no such file\nTraceback ..."})
    (behind,) = stragglers(group, "greedy")
    assert (behind.seed, behind.accuracy) == (3, None)
    assert behind.cause == "its run did not finish: ValueError: no such file"


def steps(*entropies: float, **metrics: float) -> list[dict[str, float]]:
    return [{"step": step, "actor/entropy": entropy, **metrics} for step, entropy in enumerate(entropies, start=1)]


def test_a_policy_that_became_certain_early_is_compared_with_the_others() -> None:
    own = steps(0.8, 0.13, 0.1, 0.05, 0.03, **{"reward/zero_std_groups": 0.9, "actor/clip_fraction_high": 0.02})
    other = steps(0.8, 0.5, 0.4, 0.3, 0.2, **{"reward/zero_std_groups": 0.4, "actor/clip_fraction_high": 0.01})
    assert what_metrics_show([*own, {"step": 6, "off_policy/ratio_max": 120.0}], [other]) == (
        "its policy became certain too early: entropy 0.13 nats after a quarter of the steps (others 0.50), "
        "0.03 nats at the end (others 0.20), 90.0 % of the last groups without spread (others 40.0 %), "
        "ratios up to 120, 2.0 % of the tokens clipped (others 1.0 %)"
    )


def test_no_cause_is_made_up() -> None:
    assert what_metrics_show([{"step": 0, "val/accuracy": 0.1}], []) == "its metrics show no cause"
    assert what_metrics_show(steps(0.5), [steps(0.5)]).startswith("its metrics show entropy 0.50 nats")
