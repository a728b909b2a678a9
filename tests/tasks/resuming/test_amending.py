"""A training goes on with another recipe, in its own run or in a fork, and a process that is killed on the way costs
nothing."""

import dataclasses
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rl_core.config.loading import ConfigError, dump_config, load_config
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from tasks.cache.amendments import Amendments, data_place, read_amendments
from tasks.cache.manifests import read_manifests
from tasks.cache.named_files import NamedFiles
from tasks.cache.stages import ConfigStages
from tasks.resuming.amending import StagesOf, stages_taken_up
from tasks.resuming.training_start import another_training, finished_epochs, recorded_epochs
from tests.tasks.continued import ENDS, End, Geometry, attempt, intact, results, unsynced

SMALL = Path(__file__).parents[2] / "e2e" / "configs" / "small.yaml"
OTHER = "actor.optim.lr=0.5"
GEOMETRY = Geometry(steps_per_epoch=2, epochs=3, save_freq=1, save_limit=9, batch=4)
Killed = Callable[..., int]


def stages_of(*overrides: str) -> StagesOf:
    config = load_config(SMALL, overrides)
    return partial(ConfigStages.of, config, NamedFiles(lambda source: "rows", paths_from=[str(SMALL.parents[3])]))


def geometry(stages: ConfigStages, **changed: Any) -> Geometry:
    digests = {number: digest for number, (_, digest) in enumerate(stages.epochs(9), start=1)}
    return dataclasses.replace(GEOMETRY, digests=digests, since=data_place(stages.amendments), **changed)


def taken_up(run: RunDirectory, stages: StagesOf, *, keeps_training: bool = False) -> ConfigStages:
    with unsynced():
        return stages_taken_up(run, stages, keeps_training=keeps_training)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Three of six steps are trained and saved, a fourth is recorded."""
    made = RunDirectory(tmp_path / "runs" / "mine")
    stages = stages_of()(())
    attempt(made, geometry(stages), End(step=4, kind="recorded"))
    made.config.write_text(dump_config(stages.config))
    assert intact(made) == [1, 2, 3]
    return made


def test_another_recipe_is_refused_unless_the_training_is_to_be_kept(run: RunDirectory) -> None:
    before = run.metrics.read_bytes()
    with pytest.raises(ConfigError, match=r"begun with another recipe .* --keep-training"):
        taken_up(run, stages_of(OTHER))
    assert run.metrics.read_bytes() == before and not read_amendments(run)


def test_a_training_that_is_kept_goes_on_and_what_came_before_stands(run: RunDirectory) -> None:
    before = [line for line in read(run.metrics) if line["step"] <= 3]
    stages = taken_up(run, stages_of(OTHER), keeps_training=True)
    (amendment,) = stages.amendments
    assert (amendment.step, list(amendment.kept)) == (3, ["train-epoch-001"])
    assert not run.rollouts(4).exists(), "it was sampled and scored with the former recipe"
    done = attempt(run, geometry(stages))
    assert (done.start.step, done.ended) == (3, True)
    assert [line for line in read(run.metrics) if line["step"] <= 3] == before
    assert len(finished_epochs(run, geometry(stages).wanted)) == 3
    assert taken_up(run, stages_of(OTHER)).digests == stages.digests, "a later start finds it so"
    assert stages.digests["training"] != stages_of(OTHER)(()).digests["training"], "and no other run takes it over"


def test_an_epoch_that_was_cut_by_the_length_is_not_kept_as_it_was_asked_for(tmp_path: Path) -> None:
    run, before = RunDirectory(tmp_path / "runs" / "mine"), stages_of()(())
    assert attempt(run, geometry(before, max_steps=3)).ended
    stages = taken_up(run, stages_of(OTHER), keeps_training=True)
    assert list(stages.amendments[-1].kept) == ["train-epoch-001"]
    assert attempt(run, geometry(stages)).ended
    cut, found = before.epochs(2)[1], finished_epochs(run, geometry(stages).wanted)
    assert [epoch.stage for epoch in found][1] == cut[0] and found[1].digest != cut[1]


def test_a_process_that_is_killed_while_it_takes_up_another_recipe_costs_nothing(
    run: RunDirectory, killed_before_each_call: Killed
) -> None:
    copy = run.root.with_name("before")
    shutil.copytree(run.root, copy)

    def prepare() -> None:
        shutil.rmtree(run.root)
        shutil.copytree(copy, run.root)

    def check() -> None:
        stages = taken_up(run, stages_of(OTHER), keeps_training=True)
        assert not another_training(run, stages) and intact(run) == [1, 2, 3]
        assert [amendment.step for amendment in stages.amendments] in ([3], [3, 3])
        assert [line["step"] for line in read(run.metrics)] == [1, 2, 3]

    take_up = partial(taken_up, run, stages_of(OTHER), keeps_training=True)
    assert killed_before_each_call(prepare, take_up, check) > 3


def spans_of(run: RunDirectory) -> list[tuple[int, int]]:
    """First and last step of each epoch that is recorded."""
    return [(each.result["first_step"], each.result["last_step"]) for each in recorded_epochs(run)]


@settings(max_examples=settings.default.max_examples // 4)
@given(
    before=st.integers(1, 5),
    now=st.integers(1, 5),
    stopped=st.integers(2, 9),
    save_freq=st.integers(1, 3),
    staleness=st.integers(0, 1),
    killed=st.none() | st.builds(End, step=st.integers(2, 12), kind=st.sampled_from(ENDS)),
)
@example(before=3, now=1, stopped=5, save_freq=1, staleness=0, killed=None)
@example(before=2, now=5, stopped=5, save_freq=2, staleness=1, killed=End(step=6, kind="recorded"))
def test_a_training_goes_on_with_more_or_fewer_rows(
    before: int, now: int, stopped: int, save_freq: int, staleness: int, killed: End | None
) -> None:
    """Each step is in one epoch, no step before is touched, and a kill costs nothing."""
    drawn = {"epochs": 4, "save_freq": save_freq, "staleness": staleness}
    with TemporaryDirectory() as folder:
        found = []
        for name, end in (("whole", None), ("killed", killed)):
            run = RunDirectory(Path(folder) / name / "runs" / "mine")
            attempt(run, geometry(stages_of()(()), steps_per_epoch=before, **drawn), End(step=stopped, kind="recorded"))
            lines = read(run.metrics)
            stages = taken_up(run, stages_of(OTHER), keeps_training=True)
            mended = geometry(stages, steps_per_epoch=now, **drawn)
            if end is not None:
                attempt(run, mended, end)
                assert taken_up(run, stages_of(OTHER), keeps_training=True).digests == stages.digests
            assert attempt(run, mended).ended
            kept = stages.amendments[-1].step if stages.amendments else 0
            assert [line for line in read(run.metrics) if line["step"] <= kept] == lines[:kept]
            covered = [step for first, last in spans_of(run) for step in range(first, last + 1)]
            assert covered == [line["step"] for line in read(run.metrics)] == list(range(1, mended.steps + 1))
            assert len(recorded_epochs(run)) == 4
            had = mended.since.prompts / 4
            assert mended.steps == kept + (4 - mended.since.epochs) * now - min(had, now)
            found.append(results(run))
        assert found[0] == found[1]


def forked(*overrides: str, step: int = 2) -> StagesOf:
    return stages_of(f"forked_from={{run: mine, step: {step}}}", *overrides)


def test_a_process_that_is_killed_while_it_forks_a_run_costs_neither_of_them_anything(
    run: RunDirectory, killed_before_each_call: Killed
) -> None:
    fork, before = RunDirectory(run.root.with_name("fork")), run.metrics.read_bytes()

    def prepare() -> None:
        shutil.rmtree(fork.root, ignore_errors=True)
        fork.root.mkdir()

    def check() -> None:
        stages = taken_up(fork, forked(OTHER))
        assert [(each.forked_from, each.step) for each in stages.amendments] == [("mine", 2)]
        assert intact(fork) == [2] and [line["step"] for line in read(fork.metrics)] == [1, 2]
        assert fork.rollouts(2).read_bytes() == run.rollouts(2).read_bytes() and not fork.rollouts(3).exists()
        assert (run.metrics.read_bytes(), intact(run)) == (before, [1, 2, 3])

    assert killed_before_each_call(prepare, lambda: taken_up(fork, forked(OTHER)), check, every=2) > 5
    assert attempt(fork, geometry(taken_up(fork, forked(OTHER)))).ended
    assert read(fork.metrics)[:2] == read(run.metrics)[:2]


def test_a_fork_of_a_fork_has_the_history_of_both(run: RunDirectory) -> None:
    """And the images that tools have made, which belong to what was trained."""
    first = RunDirectory(run.root.with_name("first"))
    first.root.mkdir()
    run.tool_images.mkdir()
    (run.tool_images / "made-1.png").write_bytes(b"image")
    stages = taken_up(first, forked(OTHER))
    first.config.write_text(dump_config(stages.config))
    attempt(first, geometry(stages))
    assert "tool-images/made-1.png" in read_manifests(first)[-1].outputs
    second = RunDirectory(run.root.with_name("second"))
    second.root.mkdir()
    history: Amendments = taken_up(second, stages_of("forked_from={run: first, step: 5}", "seed=8")).amendments
    assert [(each.forked_from, each.step, list(each.what)) for each in history] == [
        ("mine", 2, ["actor.optim.lr"]),
        ("first", 5, ["actor.optim.lr", "seed"]),
    ]
    assert (second.tool_images / "made-1.png").read_bytes() == b"image"


@pytest.mark.parametrize(("prompts", "ends"), [(2, [2, 5, 9]), (4, [2, 4, 6]), (8, [2, 3, 4])])
def test_a_fork_has_batches_of_its_own(run: RunDirectory, prompts: int, ends: list[int]) -> None:
    """Of the same eight rows; at step 3 the second epoch has had four of them."""
    fork = RunDirectory(run.root.with_name("fork"))
    fork.root.mkdir()
    stages = taken_up(fork, forked(f"data.rollout_batch_size={prompts}", step=3))
    assert attempt(fork, geometry(stages, steps_per_epoch=8 // prompts, batch=prompts)).ended
    assert [last for _, last in spans_of(fork)] == ends
    messages = [event["message"] for event in read(fork.events) if event["kind"] == "data-changed"]
    assert bool(messages) == (prompts != 4) == any(f"were 4 and are {prompts}" in message for message in messages)


@pytest.mark.parametrize(
    ("overrides", "step", "why"),
    [
        ([], 5, r"no checkpoint of step 5, from which a run could be forked; it has 1, 2, 3"),
        (["model.lora={rank: 4}"], 2, "model.source and model.lora stay as they are"),
        (["model.source.num_layers=3"], 2, "model.source and model.lora stay as they are"),
        (["critic={cliprange_value: 0.2}"], 2, "a critic exactly if"),
    ],
)
def test_a_fork_that_does_not_fit_its_checkpoint_is_refused(
    run: RunDirectory, overrides: list[str], step: int, why: str
) -> None:
    fork = RunDirectory(run.root.with_name("fork"))
    fork.root.mkdir()
    with pytest.raises(ConfigError, match=why):
        taken_up(fork, forked(*overrides, step=step))
