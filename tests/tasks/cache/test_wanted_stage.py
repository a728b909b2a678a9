"""A stage is what made it, and what made all before it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import StageManifest, WantedStage, software_before
from tasks.cache.software import Software, made_from
from tests.tasks.finished_run import finish_stage

TORCH = {"torch": "2.0"}
NEWER = {"torch": "2.1"}


def led_to(software: Software, *, training: Software) -> dict[str, str]:
    """The software of a stage that was made from a training."""
    return {**software, **made_from({"training": training})}


WANTED = WantedStage(name="merge", digest="d1", software=led_to(TORCH, training=TORCH))


def made(folder: Path, software: Software) -> StageManifest:
    return finish_stage(RunDirectory(folder), "merge", {}, digest="d1", software=software)


@pytest.mark.parametrize(
    ("software", "training", "reason"),
    [
        (TORCH, TORCH, None),
        (NEWER, TORCH, "made by other software: torch 2.1 -> 2.0"),
        ({"torch": "2.1; 2.0 after step 3"}, TORCH, "made by other software: torch 2.1; 2.0 after step 3 -> 2.0"),
        (TORCH, NEWER, "made by other software: what made training"),
    ],
)
def test_why_a_stage_of_another_run_is_not_taken_over(
    tmp_path: Path, software: Software, training: Software, reason: str | None
) -> None:
    assert WANTED.why_not_taken(made(tmp_path, led_to(software, training=training))) == reason


def test_the_own_stage_stands_whatever_software_made_it(tmp_path: Path) -> None:
    assert WANTED.is_outdated(made(tmp_path, led_to(NEWER, training=TORCH))) is None


def test_the_own_stage_is_outdated_where_other_software_has_made_a_stage_before_it_again(tmp_path: Path) -> None:
    reason = "other software has made training again"
    assert WANTED.is_outdated(made(tmp_path, led_to(TORCH, training=NEWER))) == reason


def test_half_of_a_stage_is_kept_for_the_same_software_alone() -> None:
    others = [{"software": NEWER}, {"software": led_to(TORCH, training=NEWER)}, {"digest": "d2"}]
    keys = {dataclasses.replace(WANTED, **other).key for other in others}
    assert len(keys | {WANTED.key}) == 4 and dataclasses.replace(WANTED).key == WANTED.key


def test_training_is_known_by_its_last_epoch(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for epoch in (1, 2, 999, 1000):
        finish_stage(run, f"train-epoch-{epoch:03d}", {}, software={"torch": f"{epoch}"})
    finish_stage(run, "prepare", {}, software=TORCH)
    parts = {"seed": "x", "what comes before: training": "x", "what comes before: training-rows": "x"}
    assert software_before(run, parts) == {"prepare": TORCH, "training": {"torch": "1000"}}


SOFTWARE = st.dictionaries(st.sampled_from(["torch", "vllm"]), st.sampled_from("12"), min_size=1)
THREE_STAGES = st.tuples(SOFTWARE, SOFTWARE, SOFTWARE)


@given(before=THREE_STAGES, now=THREE_STAGES)
def test_a_stage_is_taken_over_if_and_only_if_all_that_led_to_it_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, before: tuple[Software, ...], now: tuple[Software, ...]
) -> None:
    def of(stages: tuple[Software, ...]) -> Mapping[str, str]:
        rows, training, merge = stages
        return led_to(merge, training={**training, **made_from({"prepare": rows})})

    found = made(tmp_path_factory.mktemp("run"), of(before))
    wanted = dataclasses.replace(WANTED, software=of(now))
    assert (wanted.why_not_taken(found) is None) == (before == now)
