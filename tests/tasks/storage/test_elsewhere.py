"""A run that is continued on a machine that has nothing of it ends as if it had stayed on one machine."""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.run_directory import RunDirectory
from rl_core.storage.place import Place
from rl_core.storage.store import RunStore, StorageDamaged
from tasks.storage.contents import PROGRESS, complete_checkpoints
from tests.rl_core.storage.servers import S3Server
from tests.rl_core.storage.test_store import FailingPlace
from tests.tasks.continued import ENDS, End, Geometry, attempt, intact, results, unsynced
from tests.tasks.storage.machines import EVENTS, machine, opened, storage_of, trained

geometries = st.builds(
    Geometry,
    steps_per_epoch=st.integers(1, 4),
    epochs=st.integers(1, 3),
    save_freq=st.integers(1, 5),
    save_limit=st.integers(1, 3),
    epoch_ends=st.booleans(),
    val_freq=st.sampled_from([-1, 1, 2]),
    scores=st.sampled_from([(0.5,), (0.25, 0.75)]),
)
ends = st.builds(End, step=st.integers(1, 12), kind=st.sampled_from(ENDS))


def unbroken(folder: Path, geometry: Geometry) -> dict[str, str]:
    run = RunDirectory(folder / "unbroken" / "mine")
    attempt(run, geometry)
    return results(run)


@settings(max_examples=15)
@given(geometry=geometries, first=ends, second=ends, third=ends, calls=st.integers(0, 60))
def test_a_run_that_changes_machines_ends_as_if_it_had_stayed_on_one(
    geometry: Geometry, first: End, second: End, third: End, calls: int
) -> None:
    """On the first machine it is ended twice, and the storage goes away while it is copied the second time; on the
    second machine it is ended once more; the third one brings it to its end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place = Place.at(str(folder / "share"))
        a, b, c = (machine(folder, number) for number in range(3))
        trained(a, place, geometry, first)
        safe = max(intact(a), default=0)
        failing = FailingPlace(system=place.system, root=place.root, kind=place.kind, budget=[calls])
        with suppress(OSError):  # while training is fetched that this machine has: nothing of it is lost
            trained(a, failing, geometry, second)
        there = trained(b, place, geometry, third)
        assert there.resumed >= safe
        trained(c, place, geometry)
        expected = unbroken(folder, geometry)
        assert results(c).items() <= expected.items()
        assert {path for path in expected if not path.startswith("checkpoints/")} <= results(c).keys()
        assert max(intact(c)) == geometry.steps
        store = RunStore(place.below("mine"), verify=True)
        steps = {record.facts["step"] for record in store.records().values() if "validation_score" in record.facts}
        assert steps == {checkpoint.step for checkpoint in complete_checkpoints(c)}
        named = {file.sha256 for record in store.records().values() for file in record.files.values()}
        store.claim()
        assert set(place.below("mine").names("objects")) == named


GEOMETRY = Geometry(steps_per_epoch=4, epochs=2, save_freq=2, save_limit=2)


def test_training_that_is_ahead_elsewhere_is_fetched_and_one_that_is_behind_replaces_nothing(tmp_path: Path) -> None:
    place = Place.at(str(tmp_path / "share"))
    first, second = machine(tmp_path, 1), machine(tmp_path, 2)
    trained(first, place, GEOMETRY, End(step=3, kind="killed"))
    behind = shutil.copytree(first.root, tmp_path / "behind")
    trained(second, place, GEOMETRY, End(step=7, kind="killed"))
    assert intact(second)[-1] == 6
    away = FailingPlace(system=place.system, root=place.root, kind=place.kind, budget=[0])
    with unsynced(), opened(first, away, GEOMETRY) as storage:  # it does not answer, so that nothing is fetched
        away.budget[0] = 1 << 30
        storage.copy()
    assert RunStore(place.below("mine"), verify=True).records()[PROGRESS].facts["step"] == 6
    assert intact(first) == intact(RunDirectory(behind))
    assert trained(first, place, GEOMETRY).resumed == 6


def test_a_process_that_is_killed_while_fetched_training_is_put_in_place_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place.at(str(tmp_path / "share"))
    first, second = machine(tmp_path, 1), machine(tmp_path, 2)
    trained(first, place, GEOMETRY, End(step=7, kind="killed"))

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("tasks.resuming.training_state.remove_folder", killed)
        with pytest.raises(Killed):
            trained(second, place, GEOMETRY)
    shutil.rmtree(tmp_path / "share")
    (second.checkpoints / "step-000006" / "manifest.json").unlink()
    assert trained(second, place, GEOMETRY).resumed == 6
    assert results(second) == unbroken(tmp_path, GEOMETRY)


def test_a_damaged_checkpoint_of_the_storage_is_replaced_by_an_older_one(tmp_path: Path) -> None:
    place = Place.at(str(tmp_path / "share"))
    first, second, third = (machine(tmp_path, number) for number in range(3))
    trained(first, place, GEOMETRY, End(step=7, kind="killed"))
    records = RunStore(place.below("mine"), verify=True).records()
    for name, step in (("checkpoint-000006", 4), ("checkpoint-000004", 0)):
        damaged = records[name].files[f"checkpoints/step-{name[-6:]}/state"].sha256
        place.below("mine").write(f"objects/{damaged}", b"something else")
        if step:
            assert trained(second, FailingPlaceThatCopiesNothing.of(place), GEOMETRY).resumed == step
    with pytest.raises(StorageDamaged, match="has different content"):
        trained(third, place, GEOMETRY)


class FailingPlaceThatCopiesNothing(Place):
    """Whoever looks only must change nothing for the next one who looks."""

    @classmethod
    def of(cls, place: Place) -> Place:
        return cls(system=place.system, root=place.root, kind=place.kind)

    def write(self, name: str, data: bytes) -> None:
        raise OSError("read only")


def test_training_of_another_config_is_not_fetched_and_is_replaced(tmp_path: Path) -> None:
    place = Place.at(str(tmp_path / "share"))
    trained(machine(tmp_path, 1), place, GEOMETRY, End(step=7, kind="killed"))
    other = Geometry(steps_per_epoch=4, epochs=2, save_freq=2, save_limit=2, digests={1: "changed", 2: "changed too"})
    again = trained(machine(tmp_path, 2), place, other, End(step=3, kind="killed"))
    assert again.resumed == 0
    progress = RunStore(place.below("mine"), verify=True).records()[PROGRESS]
    assert progress.facts == {"step": 2, "begun": ["train-epoch-001", "changed"]}


def test_an_outage_is_an_event_and_the_end_of_the_run_makes_up_for_it(tmp_path: Path, s3: S3Server) -> None:
    place = Place.at(f"s3://runs/{uuid4().hex}")
    run = machine(tmp_path, 1)
    trained(run, place, GEOMETRY, End(step=3, kind="killed"))
    EVENTS.clear()
    s3.stop()
    try:
        ended = trained(run, place, GEOMETRY)
    finally:
        s3.start()
    assert ended.ended
    assert {kind for kind, _ in EVENTS} == {"storage-failed"}
    assert RunStore(place.below("mine"), verify=True).records()[PROGRESS].facts["step"] == 2
    storage = storage_of(run, place)
    storage.bring_training(GEOMETRY.chain, here=lambda: 8)
    storage.close()
    assert RunStore(place.below("mine"), verify=True).records()[PROGRESS].facts["step"] == 8
    moved = machine(tmp_path, 2)
    assert trained(moved, place, GEOMETRY).resumed == 8
    assert results(moved).items() <= unbroken(tmp_path, GEOMETRY).items()


def test_a_second_machine_takes_the_copy_over_and_the_first_one_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place.at(str(tmp_path / "share"))
    first, second = machine(tmp_path, 1), machine(tmp_path, 2)
    with unsynced(), opened(first, place, GEOMETRY) as storage:
        attempt(first, GEOMETRY, End(step=3, kind="killed"))
        storage.copy_checkpoints()
        storage.wait()
        trained(second, place, GEOMETRY, End(step=7, kind="killed"))
        attempt(first, GEOMETRY, End(step=5, kind="killed"))
    assert "this process copies no more of it" in caplog.text
    assert RunStore(place.below("mine"), verify=True).records()[PROGRESS].facts["step"] == 6


def test_a_copy_that_broke_off_between_an_epoch_and_its_metrics_counts_up_to_what_it_has_whole(tmp_path: Path) -> None:
    place = Place.at(str(tmp_path / "share"))
    first = machine(tmp_path, 1)
    geometry = Geometry(steps_per_epoch=3, epochs=3, save_freq=4, save_limit=2, val_freq=1)
    trained(first, place, geometry, End(step=5, kind="stopped"))
    there = place.below("mine")
    progress = there.read(f"records/{PROGRESS}.json")
    checkpoint = RunStore(there, verify=True).records()["checkpoint-000005"]
    held = shutil.copytree(first.root, tmp_path / "held")
    trained(first, place, geometry)
    there.write(f"records/{PROGRESS}.json", progress)  # as if the last copy had broken off before it
    store = RunStore(there, verify=True)
    store.save(checkpoint, lambda path: held / path)
    for path, file in store.records()[PROGRESS].files.items():
        there.put(held / path, f"objects/{file.sha256}", size=file.size)
    assert trained(machine(tmp_path, 2), place, geometry).resumed == 5
