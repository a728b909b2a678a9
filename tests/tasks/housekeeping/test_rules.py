"""A rule chooses what it says, and a run that is being written by none."""

from datetime import timedelta
from pathlib import Path

import pytest

from rl_core.config.loading import ConfigError
from rl_core.run_lock import RunLock
from tasks.housekeeping.overview import overviews
from tasks.housekeeping.removal import Rule, parse_age
from tests.tasks.housekeeping.runs import NOW, aged, failed, finished


def chosen(runs_dir: Path, rule: Rule) -> dict[str, str]:
    return {run.run.name: why for run, why in rule.choose(list(overviews(runs_dir)), NOW)}


def test_failed_and_killed_runs_are_chosen_and_interrupted_ones_are_not(tmp_path: Path) -> None:
    config = finished(tmp_path).config
    for name, end in (("failed", "failed"), ("killed", None), ("stopped", "interrupted"), ("half", "completed")):
        failed(tmp_path, name, end=end).config.write_bytes(config.read_bytes())
    assert chosen(tmp_path, Rule(failed=True)).keys() == {"failed", "killed"}


def test_all_but_the_newest_finished_run_of_a_config_are_superseded(tmp_path: Path) -> None:
    """Seeds are repetitions: they do not supersede one another. Which is the newest the report's time says: an old run
    that was evaluated once more is not the newest."""
    weeks = [finished(tmp_path, tag=f"week-{day}", day=day) for day in (3, 1, 2)]
    seed = finished(tmp_path, "seed=2")
    aged(weeks[0], days=5)
    found = chosen(tmp_path, Rule(superseded=True))
    assert found.keys() == {weeks[1].name, weeks[2].name}
    assert seed.name not in found
    assert all(why.startswith(f"superseded by {weeks[0].name}") for why in found.values())


def test_the_age_narrows_the_other_rules(tmp_path: Path) -> None:
    old, young = failed(tmp_path, "old"), failed(tmp_path, "young")
    config = finished(tmp_path, "seed=3").config.read_bytes()
    for run in (old, young):
        run.config.write_bytes(config)
    aged(old, days=31)
    assert chosen(tmp_path, Rule(failed=True, older_than=timedelta(days=30))).keys() == {"old"}
    assert chosen(tmp_path, Rule(older_than=timedelta(days=30))).keys() == {"old"}
    assert chosen(tmp_path, Rule(failed=True)).keys() == {"old", "young"}


def test_a_run_that_is_being_written_is_chosen_by_no_rule(tmp_path: Path) -> None:
    run = aged(failed(tmp_path, "old"), days=99)
    with RunLock(run.lock):
        assert chosen(tmp_path, Rule(failed=True, superseded=True, older_than=timedelta(0))) == {}
        assert chosen(tmp_path, Rule(older_than=timedelta(0))) == {}


def test_a_rule_says_something() -> None:
    with pytest.raises(ConfigError, match="--failed, --superseded, --older-than 30d"):
        Rule()


def test_an_age_is_a_number_with_its_unit() -> None:
    assert [parse_age(text) for text in ("12h", "30d", "8w")] == [timedelta(hours=12), timedelta(30), timedelta(56)]


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1.5d", "30 days", "9999999d", "1m"])
def test_a_text_that_is_no_age_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="12h, 30d or 8w"):
        parse_age(text)


def test_runs_with_earlier_stages_are_chosen_among_those_of_the_other_rules(tmp_path: Path) -> None:
    run, plain = aged(finished(tmp_path), days=31), aged(finished(tmp_path, "seed=2"), days=31)
    run.earlier.mkdir()
    aged(run, days=31)
    assert chosen(tmp_path, Rule(earlier=True)).keys() == {run.name}
    assert chosen(tmp_path, Rule(earlier=True, older_than=timedelta(days=30))).keys() == {run.name}
    assert not chosen(tmp_path, Rule(earlier=True, older_than=timedelta(days=32)))
    assert not chosen(tmp_path, Rule(earlier=True, failed=True)) and plain.config.is_file()
