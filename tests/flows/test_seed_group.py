"""Groups of seeds: how seeds are written, and which runs a group leads to."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from flows.request import resolve_run
from flows.seed_group import OptionalSeeds, SeedGroup, Seeds, parse_seeds, seeds_text
from rl_core.config.loading import ConfigError

pytestmark = pytest.mark.usefixtures("at_the_root")

SMALL = "tests/e2e/configs/small.yaml"
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def group_of(runs_dir: Path, **parameters: Any) -> SeedGroup:
    asked = {"config": SMALL, "overrides": [], "seeds": "1-3", "resume": "", "fresh": False, "runs_dir": str(runs_dir)}
    return SeedGroup.of_parameters(asked | parameters, START)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("1-5", (1, 2, 3, 4, 5)), ("1,3,7-9", (1, 3, 7, 8, 9)), ("7", (7,)), ("3, 1-2,2", (1, 2, 3)), ("0-0", (0,))],
)
def test_seeds_are_numbers_and_ranges(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds
    for form in (Seeds, OptionalSeeds):
        TypeAdapter(form).validate_python(text)


def test_only_where_the_config_has_a_seed_may_none_be_given() -> None:
    TypeAdapter(OptionalSeeds).validate_python("")


@pytest.mark.parametrize("text", ["", "1-", "-3", "a", "1 2", "1,,2", "1-2-3", "1.5"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="such as 1-5 or 1,3,7-9"):
        parse_seeds(text)
    for form in [Seeds, OptionalSeeds] if text else [Seeds]:
        with pytest.raises(ValidationError):
            TypeAdapter(form).validate_python(text)


@pytest.mark.parametrize(
    ("text", "why"), [("5-1", "ascending"), ("1-100000000000", "at most 100"), ("1-60,70-130", "at most 100")]
)
def test_ranges_that_cannot_be_meant_are_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_seeds(text)


@given(st.sets(st.integers(0, 10**6), min_size=1, max_size=20))
def test_seeds_are_written_as_they_are_read(seeds: set[int]) -> None:
    assert parse_seeds(seeds_text(sorted(seeds))) == tuple(sorted(seeds))


def test_many_seeds_make_no_long_name(tmp_path: Path) -> None:
    odd = ",".join(str(seed) for seed in range(1, 200, 2))
    names = {group_of(tmp_path, seeds=seeds).name for seeds in ("1-5", odd, odd.replace("199", "201"))}
    assert len(names) == 3 and all(len(name) < 100 for name in names)


def test_a_member_is_the_run_that_the_config_leads_to_with_its_seed(tmp_path: Path) -> None:
    group = group_of(tmp_path, overrides=["rollout.n=2"], seeds="2-3")
    alone = [resolve_run(SMALL, ["rollout.n=2", f"seed={seed}"], runs_dir=tmp_path) for seed in (2, 3)]
    assert [plan.resolved for plan in group.planned()] == alone
    assert [plan.name for plan in group.planned()] == ["seed 2", "seed 3"]


def test_a_group_goes_on_by_its_name_whatever_became_of_the_file(tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(Path(SMALL).read_text())
    group = group_of(tmp_path, config=str(config), seeds="1,3-4", fresh=True)
    assert group.name.startswith("small-") and group.name.endswith("-seeds-1,3-4-20260102T030405")
    assert not group.is_saved
    group.save()
    config.unlink()
    assert group.is_saved and group_of(tmp_path, resume=group.name) == group
    assert f"sightline run --resume {group.name}" in group.command
    with pytest.raises(ValueError, match=rf"no group of seeds nothing; .* has {group.name}"):
        group_of(tmp_path, resume="nothing")


def test_the_seed_of_the_config_makes_no_other_group(tmp_path: Path) -> None:
    names = {group_of(tmp_path, overrides=[f"seed={seed}"]).name for seed in (1, 2)}
    assert len(names) == 1
    assert group_of(tmp_path, seeds="1-4").name not in names
    assert group_of(tmp_path, overrides=["rollout.n=2"]).name not in names


def test_a_config_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give a config file"):
        group_of(tmp_path, config="")
