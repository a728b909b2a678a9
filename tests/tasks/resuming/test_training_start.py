"""A training that was ended goes on after its newest intact checkpoint, and nothing intact is removed on the way."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rl_core.checkpoints.store import CheckpointStore, kept_checkpoints
from rl_core.config.training import StopAt
from rl_core.files import files_below
from rl_core.records.metrics_log import read, validated_steps
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import manifests_of_epochs
from tasks.resuming.training_start import finished_epochs
from tests.results import differences
from tests.tasks.continued import ENDS, End, Geometry, attempt, intact, recorded, results


@contextmanager
def new_run() -> Iterator[RunDirectory]:
    with tempfile.TemporaryDirectory() as folder:
        yield RunDirectory(Path(folder) / "runs" / "mine")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "runs" / "mine")


geometries = st.builds(
    Geometry,
    steps_per_epoch=st.integers(1, 6),
    epochs=st.integers(1, 4),
    save_freq=st.integers(1, 7),
    save_limit=st.integers(1, 3),
    epoch_ends=st.booleans(),
    val_freq=st.sampled_from([-1, 1, 2, 3]),
    scores=st.lists(st.sampled_from([0.0, 0.25, 0.5]), min_size=1, max_size=5),
    model_only=st.booleans(),
    max_steps=st.none() | st.integers(1, 14),
)
ends = st.lists(st.builds(End, step=st.integers(1, 20), kind=st.sampled_from(ENDS)), min_size=1, max_size=3)

CLEVR = Geometry(steps_per_epoch=20, epochs=2, save_freq=5, save_limit=3)
"""Its checkpoint at the end of epoch 1 is gone after step 35."""


def test_finished_epochs_come_by_their_numbers(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for epoch in (1000, 2, 999):
        manifest = run.stage_manifest(f"train-epoch-{epoch:03d}")
        manifest.parent.mkdir(exist_ok=True)
        manifest.write_text("{}")
    names = [path.stem for path in manifests_of_epochs(run)]
    assert names == ["train-epoch-002", "train-epoch-999", "train-epoch-1000"]


def test_an_epoch_without_a_checkpoint_of_its_own_is_begun_again_from_an_earlier_one(run: RunDirectory) -> None:
    """Epoch 1 was finished with step 4, and the newest checkpoint is of step 3."""
    geometry = Geometry(steps_per_epoch=4, epochs=2, save_freq=3, save_limit=2, epoch_ends=False)
    attempt(run, geometry, End(step=5, kind="killed"))
    assert [path.stem for path in manifests_of_epochs(run)] == ["train-epoch-001"] and intact(run) == [3]
    again = attempt(run, geometry)
    assert (again.start.epochs, again.start.step, again.start.again) == ([], 3, 1)
    assert again.ended and intact(run) == [6, 8]


HALF = StopAt(metric="reward/overall", value=0xFFFFFF / 14, patience=1)
"""Half of the steps reach it."""


@given(
    geometry=geometries,
    ends=ends,
    staleness=st.sampled_from([0, 1]),
    stop_at=st.none() | st.sampled_from([HALF, HALF.model_copy(update={"patience": 3})]),
)
@example(geometry=CLEVR, ends=[End(step=38, kind="killed")], staleness=0, stop_at=None)
@example(geometry=CLEVR, ends=[End(step=36, kind="stopped"), End(step=37, kind="killed")], staleness=1, stop_at=None)
@settings(max_examples=settings.default.max_examples // 4)
def test_an_ended_training_goes_on_after_its_newest_intact_checkpoint(
    geometry: Geometry, ends: list[End], staleness: int, stop_at: StopAt | None
) -> None:
    geometry = replace(geometry, staleness=staleness, stop_at=stop_at)
    with new_run() as whole, new_run() as run:
        attempt(whole, geometry)
        attempt(run, geometry, ends[0])
        for end in [*ends[1:], None]:
            done, last = CheckpointStore(run.checkpoints, save_limit=1).complete(), recorded(run)
            newest = done[-1].step if done else 0
            tried = attempt(run, geometry, end)
            assert tried.start.step == tried.resumed == newest
            assert tried.kept == [found.step for found in kept_checkpoints(done, geometry.save_limit)]
            assert tried.start.again == last - newest <= geometry.save_freq
            assert tried.start.lost is None
        assert differences(results(whole), results(run)) == []


@pytest.mark.parametrize("kind", ENDS)
def test_a_target_ends_the_training_at_one_step_however_it_was_interrupted(kind: str, run: RunDirectory) -> None:
    geometry = Geometry(steps_per_epoch=4, epochs=5, save_freq=3, save_limit=2, epoch_ends=False, stop_at=HALF)
    attempt(run, geometry)
    reached = next(line["step"] for line in read(run.metrics) if line["reward/overall"] >= HALF.value)
    other = RunDirectory(run.root.with_name("other"))
    attempt(other, geometry, End(step=reached, kind=kind))
    again = attempt(other, geometry)
    assert again.ended and attempt(other, geometry).start.ended
    assert recorded(other) == intact(other)[-1] == reached
    assert differences(results(run), results(other)) == []


@given(
    geometry=geometries,
    lengths=st.lists(st.integers(1, 14), min_size=2, max_size=4),
    operations=st.lists(
        st.fixed_dictionaries(
            {"save_freq": st.integers(1, 7), "save_limit": st.integers(1, 3), "model_only": st.just(False)}
        ),
        min_size=4,
        max_size=4,
    ),
    ends=st.lists(st.builds(End, step=st.integers(1, 20), kind=st.sampled_from(ENDS)), min_size=4, max_size=4),
    staleness=st.sampled_from([0, 1]),
)
@settings(max_examples=settings.default.max_examples // 4)
def test_a_training_that_is_lengthened_step_by_step_is_the_long_one(
    geometry: Geometry, lengths: list[int], operations: list[dict[str, Any]], ends: list[End], staleness: int
) -> None:
    """Also where it is killed on the way and other operations hold from a start on. No record of a step that stands is
    removed."""
    geometry = replace(geometry, epochs=14, staleness=staleness, model_only=False)
    with new_run() as whole, new_run() as run:
        attempt(whole, replace(geometry, max_steps=max(lengths)))
        for length, operation, end in zip(sorted(lengths), operations, ends, strict=False):
            longer = replace(geometry, max_steps=length, **operation)
            attempt(run, longer, end)
            saved = max([0, *intact(run)])
            stands = {step: run.rollouts(step).read_bytes() for step in range(1, saved + 1)}
            assert attempt(run, longer).ended and recorded(run) == length
            assert stands == {step: run.rollouts(step).read_bytes() for step in stands}
            assert attempt(run, longer).start.ended
        assert differences(records(whole), records(run)) == []


@pytest.mark.parametrize(("before", "after"), [(-1, 2), (2, -1), (3, 2), (2, 3)])
def test_validations_may_begin_end_and_come_at_other_steps_while_a_run_goes_on(
    run: RunDirectory, before: int, after: int
) -> None:
    geometry = Geometry(steps_per_epoch=4, epochs=2, save_freq=1, save_limit=2, val_freq=before)
    attempt(run, geometry, End(step=6, kind="stopped"))
    again = attempt(run, replace(geometry, val_freq=after))
    assert (again.start.step, again.start.lost, again.ended) == (6, None, True)
    validated = {step for step in range(1, 9) if (freq := before if step <= 6 else after) > 0 and step % freq == 0}
    assert validated_steps(run.metrics) - {0} == validated
    assert attempt(run, replace(geometry, val_freq=after)).start.ended


def test_a_target_that_is_raised_or_taken_away_lets_the_training_go_on(run: RunDirectory) -> None:
    geometry = Geometry(steps_per_epoch=4, epochs=5, save_freq=3, save_limit=2, epoch_ends=False, stop_at=HALF)
    attempt(run, geometry)
    reached = recorded(run)
    assert reached < 20
    assert attempt(run, replace(geometry, stop_at=None), End(step=reached + 2, kind="stopped")).start.step == reached
    late = attempt(run, geometry)
    assert (late.start.step, recorded(run)) == (reached + 2, reached + 2), (
        "a target that was reached before ends it now"
    )
    assert attempt(run, replace(geometry, stop_at=None)).ended and recorded(run) == 20


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def cut_end(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def flip(file: Path) -> None:
    content = file.read_bytes()
    middle = len(content) // 2
    file.write_bytes(content[:middle] + bytes([content[middle] ^ 0x15]) + content[middle + 1 :])


DAMAGES = {"deleted": Path.unlink, "cut": cut, "cut at its end": cut_end, "flipped": flip}


@given(
    geometry=geometries,
    end=st.builds(End, step=st.integers(2, 20), kind=st.sampled_from(ENDS)),
    damage=st.sampled_from(sorted(DAMAGES)),
    which=st.integers(0, 1000),
)
@settings(max_examples=settings.default.max_examples // 4)
def test_damage_to_any_one_file_costs_little_and_a_lost_record_is_reported(
    geometry: Geometry, end: End, damage: str, which: int
) -> None:
    with new_run() as whole, new_run() as run:
        attempt(whole, geometry)
        attempt(run, geometry, end)
        before, reached = intact(run), max([0, recorded(run), *intact(run)])
        files = [file for file in files_below(run.root) if file.stat().st_size > 3]
        damaged = files[which % len(files)]
        name = damaged.relative_to(run.root).as_posix()
        hashed = {path for epoch in finished_epochs(run, geometry.wanted) for path in epoch.outputs}
        DAMAGES[damage](damaged)
        newest = max(intact(run), default=0)
        tried = attempt(run, geometry)
        assert tried.ended and tried.start.step == tried.resumed
        assert tried.start.again <= reached - tried.start.step
        if tried.start.lost is None:
            assert tried.start.step == newest
        else:
            assert damaged.name in tried.start.lost
            assert tried.start.step >= [0, *before][-geometry.save_limit - 1 :][0]
        if tried.start.lost is None or tried.start.step < newest:
            # Nobody has a hash of the rollouts and validations of an epoch that is not finished.
            tolerated = {name} if damage != "deleted" and name not in hashed and damaged.suffix == ".parquet" else set()
            assert {*differences(records(whole), records(run))} <= tolerated


def test_a_training_whose_metrics_are_gone_after_its_last_save_comes_to_its_end(run: RunDirectory) -> None:
    geometry = Geometry(steps_per_epoch=3, epochs=2, save_freq=3, save_limit=1)
    attempt(run, geometry, End(step=6, kind="unnoted"))
    run.metrics.unlink()
    tried = attempt(run, geometry)
    assert tried.ended and tried.start.step == 6
    assert tried.start.lost is not None and run.metrics.name in tried.start.lost


def records(run: RunDirectory) -> dict[str, str]:
    """What a training leaves, but for its older checkpoints: one that was damaged is not made again."""
    last = f"checkpoints/step-{max(intact(run)):06d}"
    found = results(run).items()
    return {name: content for name, content in found if name.startswith((last, "metrics", "rollouts", "validations"))}
