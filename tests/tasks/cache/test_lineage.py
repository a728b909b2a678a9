"""A stage is what made it, and what made all before it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.run_directory import RunDirectory
from tasks.cache.lineage import UNKNOWN, WantedStage, lineage_of, lineages_before
from tasks.cache.manifests import StageManifest
from tests.tasks.finished_run import finish_stage

TORCH = {"torch": "2.0"}
NEWER = {"torch": "2.1"}
WANTED = WantedStage(name="merge", digest="d1", software=TORCH, made_from={"training": "a" * 12})


def test_a_lineage_is_of_the_software_and_of_what_comes_before() -> None:
    lineage = lineage_of(TORCH, {"prepare": "a", "cold-start": "b"})
    assert lineage == lineage_of(dict(TORCH), {"cold-start": "b", "prepare": "a"})
    others = [lineage_of(NEWER, {"prepare": "a", "cold-start": "b"}), lineage_of(TORCH, {"prepare": "a"})]
    assert len({lineage, *others, lineage_of(TORCH, {"prepare": "b", "cold-start": "a"})}) == 4


@pytest.mark.parametrize(("software", "before"), [({}, {}), (TORCH, {"prepare": UNKNOWN, "cold-start": "b"})])
def test_what_nobody_noted_stays_unknown_to_the_end(software: Mapping[str, str], before: Mapping[str, str]) -> None:
    assert lineage_of(software, before) == UNKNOWN


def made(folder: Path, software: Mapping[str, str], **made_from: str) -> StageManifest:
    return finish_stage(RunDirectory(folder), "merge", {}, digest="d1", software=software, made_from=made_from)


@pytest.mark.parametrize(
    ("software", "training", "reason"),
    [
        (TORCH, "a" * 12, None),
        (NEWER, "a" * 12, "made by other software: torch 2.1 -> 2.0"),
        ({"torch": "2.1; 2.0 after step 3"}, "a" * 12, "made by other software: torch 2.1; 2.0 after step 3 -> 2.0"),
        (TORCH, "b" * 12, "what comes before was made by other software: training"),
        (TORCH, UNKNOWN, "what comes before was made by other software: training"),
        ({}, "a" * 12, "it does not say by which software it was made"),
    ],
)
def test_why_a_stage_of_another_run_is_not_taken_over(
    tmp_path: Path, software: Mapping[str, str], training: str, reason: str | None
) -> None:
    assert WANTED.why_not_taken(made(tmp_path, software, training=training)) == reason


def test_nothing_is_taken_over_after_a_stage_that_nobody_noted_the_software_of(tmp_path: Path) -> None:
    """Both do not say, and that is no sign that they are equal."""
    wanted = dataclasses.replace(WANTED, made_from={"training": UNKNOWN})
    reason = wanted.why_not_taken(made(tmp_path, TORCH, training=UNKNOWN))
    assert reason == "what comes before was made by other software: training"


@pytest.mark.parametrize("software", [TORCH, NEWER, {}])
def test_the_own_stage_stands_whatever_software_made_it(tmp_path: Path, software: Mapping[str, str]) -> None:
    assert WANTED.is_outdated(made(tmp_path, software, training="a" * 12)) is None


def test_the_own_stage_is_outdated_where_it_was_made_from_something_else(tmp_path: Path) -> None:
    reason = "what comes before was made anew by other software: training"
    assert WANTED.is_outdated(made(tmp_path, TORCH, training="b" * 12)) == reason
    assert WANTED.is_outdated(made(tmp_path, {})) == reason
    unknown = dataclasses.replace(WANTED, made_from={"training": UNKNOWN})
    assert unknown.is_outdated(made(tmp_path, {})) is None, "of an earlier version, like all before it"


@pytest.mark.parametrize("before", ["a" * 12, UNKNOWN])
def test_half_of_a_stage_is_kept_for_the_same_software_alone(before: str) -> None:
    wanted = dataclasses.replace(WANTED, made_from={"training": before})
    others = [{"software": NEWER}, {"made_from": {"training": "b" * 12}}, {"digest": "d2"}]
    keys = {dataclasses.replace(wanted, **other).key for other in others}
    assert len(keys | {wanted.key}) == 4 and dataclasses.replace(wanted).key == wanted.key


def test_training_is_known_by_its_last_epoch(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for epoch in (1, 2, 999, 1000):
        finish_stage(run, f"train-epoch-{epoch:03d}", {}, software={"torch": f"{epoch}"})
    finish_stage(run, "prepare", {}, software=TORCH)
    parts = {"seed": "x", "what comes before: training": "x", "what comes before: training-rows": "x"}
    assert lineages_before(run, parts) == {
        "prepare": lineage_of(TORCH, {}),
        "training": lineage_of({"torch": "1000"}, {}),
    }


SOFTWARE = st.dictionaries(st.sampled_from(["torch", "vllm"]), st.sampled_from("12"), min_size=1)
TWO_STAGES = st.tuples(SOFTWARE, SOFTWARE)


@given(before=TWO_STAGES, now=TWO_STAGES)
def test_a_stage_is_taken_over_if_and_only_if_all_that_led_to_it_is_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    before: tuple[Mapping[str, str], Mapping[str, str]],
    now: tuple[Mapping[str, str], Mapping[str, str]],
) -> None:
    found = made(tmp_path_factory.mktemp("run"), before[1], training=lineage_of(before[0], {}))
    wanted = dataclasses.replace(WANTED, software=now[1], made_from={"training": lineage_of(now[0], {})})
    assert (wanted.why_not_taken(found) is None) == (before == now)
