"""The training loop on the real worker: records, checkpoints, stops, resumes."""

import dataclasses
import errno
import json
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean

import pytest
import torch

from rl_core.algorithms.estimators import GAE, ReinforcePlusPlus
from rl_core.algorithms.filters import BoundsFilter
from rl_core.algorithms.losses import GSPOTokenLoss
from rl_core.config.algorithm import AdaptiveKLConfig, AlgorithmConfig, KLConfig, TruncatedCorrection
from rl_core.config.run import RunConfig
from rl_core.config.training import CriticConfig, OptimConfig, StopAt
from rl_core.data.prepared import PreparedDataset
from rl_core.evaluation.items import read_items
from rl_core.isolation.failed_share import TooManyFailures, check_failed_share
from rl_core.loop import training_loop
from rl_core.loop.batch_queue import PENDING_FILE
from rl_core.loop.learning_signal import NoSignal
from rl_core.loop.training_loop import TrainingLoop, epoch_span, is_saved
from rl_core.planning.epoch_spans import EpochSpans
from rl_core.progress import TALLY, Advance, Now, Progress, SilentProgress
from rl_core.records.metrics_log import read, step_files
from rl_core.records.rollout_files import read_rollouts
from rl_core.rewards.pool import RewardPool
from rl_core.run_directory import RunDirectory
from rl_core.stop import Interrupted, StopRequest
from rl_core.training.optimizer import NonFiniteGradients
from tests.results import differences, hashes
from tests.rl_core.small_run import small_loop
from tests.rl_core.steps import changed, stopped_in_a_step

OpenLoop = Callable[..., TrainingLoop]


@pytest.fixture
def validating(config) -> RunConfig:
    return changed(config, {"trainer.val_freq": 3, "trainer.save_freq": 2})


@pytest.fixture
def open_loop(validating, worker, rewards, prepared_run) -> OpenLoop:
    """A loop on the shared worker that writes into a folder of the test."""

    def open_in(
        folder: Path,
        *,
        stop: StopRequest | None = None,
        progress: Progress | None = None,
        config: RunConfig = validating,
        pool: RewardPool = rewards,
    ) -> TrainingLoop:
        return small_loop(
            folder, config, worker, prepared_run, rewards=pool, judges=rewards, stop=stop, progress=progress
        )

    return open_in


def results(folder: Path, *, last: int = 6) -> dict[str, str]:
    return hashes(folder, ("metrics.jsonl", "*/step-*.parquet", f"checkpoints/step-{last:06d}/**/*"))


def whole_and_cut(open_loop: OpenLoop, folder: Path, **options: object) -> tuple[RunDirectory, RunDirectory]:
    """Two epochs in one process, and the same in two: they leave the same to the bit."""
    whole, cut = RunDirectory(folder / "whole"), RunDirectory(folder / "cut")
    loop = open_loop(whole.root, **options)
    for epoch in (1, 2):
        loop.train_epoch(epoch)
        open_loop(cut.root, **options).train_epoch(epoch)
    assert differences(results(whole.root), results(cut.root)) == []
    return whole, cut


def trained_again(open_loop: OpenLoop, folder: Path, *, lost: Sequence[int], **options: object) -> RunDirectory:
    """An epoch of which checkpoints are lost, and which is trained again from there: it leaves the same to the bit."""
    run = RunDirectory(folder)
    open_loop(folder, **options).train_epoch(1)
    before = results(folder, last=3)
    for step in lost:
        shutil.rmtree(run.checkpoints / f"step-{step:06d}")
    open_loop(folder, **options).train_epoch(1)
    assert differences(before, results(folder, last=3)) == []
    return run


def steps_repeated(run: RunDirectory) -> list[int]:
    return [event["step"] for event in read(run.events) if event["kind"] == "rollouts-repeated"]


@pytest.fixture
def with_every_state(validating, worker, prepared_run, monkeypatch) -> RunConfig:
    """A run whose next step depends on more than the weights: the KL coefficient follows the KL."""
    algorithm = AlgorithmConfig(
        advantage=ReinforcePlusPlus(),
        loss=GSPOTokenLoss(),
        old_log_probs="recompute",
        correction=TruncatedCorrection(type="tis"),
        kl=KLConfig(coef=0.1, use_kl_loss=False, adaptive=AdaptiveKLConfig(target=1e-4, horizon=64.0)),
    )
    config = changed(validating, {"algorithm": algorithm, "actor.ppo_epochs": 2})
    monkeypatch.setattr(worker.trainer, "config", config)
    worker.load("reference", prepared_run.initial_model)
    return config


def test_a_run_cut_in_two_leaves_what_an_unbroken_one_leaves(open_loop, with_every_state, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    loop = open_loop(whole, config=with_every_state)
    loop.train_epoch(1)
    unbroken = loop.train_epoch(2)
    open_loop(cut, config=with_every_state).train_epoch(1)
    recorded = []
    resumed = open_loop(cut, config=with_every_state).train_epoch(
        2, after_step=lambda: recorded.append(max(line["step"] for line in read(RunDirectory(cut).metrics)))
    )
    assert recorded == [4, 5, 6]
    assert differences(results(whole), results(cut)) == []
    assert [name for name in results(whole) if name.startswith("validations/")] == [
        f"validations/step-00000{step}.parquet" for step in (0, 3, 6)
    ]
    assert resumed.metrics == unbroken.metrics
    assert (resumed.first_step, resumed.last_step) == (4, 6)
    coefs = [line["kl/coef"] for line in read(RunDirectory(whole).metrics) if "kl/coef" in line]
    assert len(coefs) == len(set(coefs)) == 6, "the KL coefficient too goes on where it was"


def test_a_validation_leaves_every_answer_that_its_metrics_count(open_loop, prepared_run, tmp_path):
    open_loop(tmp_path).train_epoch(1)
    run = RunDirectory(tmp_path)
    prompts = PreparedDataset.open(prepared_run.data, "validation")[:]
    lines = {line["step"]: line for line in read(run.metrics)}
    for step in (0, 3):
        items = read_items(run.validation(step))
        assert [(item.uid, item.answer) for item in items] == [(prompt.uid, prompt.answer) for prompt in prompts]
        assert mean(item.is_right for item in items) == lines[step]["val/accuracy"]
        assert mean(item.length for item in items) == lines[step]["val/response_length"]
        assert mean(item.components["overall"] for item in items) == pytest.approx(lines[step]["val/reward"])


def test_rollouts_after_the_checkpoint_are_not_generated_again(open_loop, tmp_path):
    """A kill between two checkpoints costs the updates, not the generation, and nothing else differs."""
    run = trained_again(open_loop, tmp_path, lost=(2, 3))
    assert not run.repeated_rollouts(0).parent.exists()
    assert ["generate_s" in line for line in read(run.timings)] == [False, False, False]
    device = f"CPU with {torch.get_num_threads()} thread(s)"
    assert [line["workers"]["device"] for line in read(run.timings)] == [[device]] * 3
    assert steps_repeated(run) == [1, 2, 3]
    assert [event["step"] for event in read(run.events) if event["kind"] == "resumed"] == [0]


def cut_after_a_model_only_checkpoint(config, open_loop, worker, monkeypatch, folder) -> RunDirectory:
    """A run of two epochs whose second one is trained twice, from a checkpoint without moments after step 3."""
    config = changed(config, {"trainer.save_model_only": True, "trainer.save_freq": 3, "trainer.val_freq": -1})
    monkeypatch.setattr(worker.trainer, "config", config)
    loop = open_loop(folder, config=config)
    loop.train_epoch(1)
    loop.train_epoch(2)
    run = RunDirectory(folder)
    shutil.rmtree(run.checkpoints / "step-000006")
    open_loop(folder, config=config).train_epoch(2)
    return run


def test_without_moments_only_the_next_step_takes_recorded_rollouts(
    open_loop, validating, worker, monkeypatch, tmp_path
):
    """The steps after it come to other weights than the interrupted attempt had, which do not agree with its
    rollouts."""
    run = cut_after_a_model_only_checkpoint(validating, open_loop, worker, monkeypatch, tmp_path)
    assert ["generate_s" in line for line in read(run.timings)] == [True, True, True, False, True, True]
    assert not run.repeated_rollouts(0).parent.exists()


def test_damaged_rollouts_are_generated_again(open_loop, tmp_path, caplog):
    run = RunDirectory(tmp_path)
    open_loop(tmp_path).train_epoch(1)
    before = results(tmp_path, last=3)
    shutil.rmtree(run.checkpoints / "step-000003")
    run.rollouts(3).write_bytes(run.rollouts(3).read_bytes()[:-9])
    open_loop(tmp_path).train_epoch(1)
    assert "its rollouts are generated again" in caplog.text
    assert differences(before, results(tmp_path, last=3)) == []


def test_without_moments_a_run_goes_on_where_its_learning_rate_was(
    open_loop, validating, worker, monkeypatch, tmp_path
):
    optim = OptimConfig(lr=1e-3, lr_warmup_steps=10)
    config = changed(validating, {"actor.optim": optim, "trainer.save_model_only": True, "trainer.val_freq": -1})
    monkeypatch.setattr(worker.trainer, "config", config)
    open_loop(tmp_path, config=config).train_epoch(1)
    open_loop(tmp_path, config=config).train_epoch(2)
    rates = [line["actor/lr"] for line in read(tmp_path / "metrics.jsonl") if "actor/lr" in line]
    assert rates == pytest.approx([1e-3 * optimizer_steps / 11 for optimizer_steps in (2, 4, 6, 8, 10, 11)])


FILTERS = {
    "keep": BoundsFilter(filter_key="odd", filter_low=0.5, filter_high=None, surplus="keep"),
    "small draws": BoundsFilter(filter_key="odd", filter_low=0.5, filter_high=None, mini_rollout_batch_size=3),
}


@pytest.mark.parametrize(
    ("filtering", "staleness"),
    [
        pytest.param(FILTERS["keep"], 1, id="keep, one step off"),
        pytest.param(FILTERS["small draws"], 0, id="small draws"),
    ],
)
def test_group_filtering_continues_where_it_was_in_the_data(
    open_loop, validating, parity, tmp_path, filtering, staleness
):
    """A step takes as many prompts as it needs, so the place in the data is no function of the step; and what it keeps
    of them is learned from in the next one."""
    never_validating = changed(validating, {"trainer.val_freq": -1, "rollout.staleness": staleness})
    config = changed(never_validating, {"algorithm.online_filtering": filtering})
    whole, _ = whole_and_cut(open_loop, tmp_path, config=config, pool=parity)
    lines = {line["step"]: line for line in read(whole.metrics)}
    assert max(line["filter/draws"] for line in lines.values()) > 1.0
    if filtering.surplus == "keep":
        assert lines[3]["filter/kept_groups"] > 0.0, "at the checkpoint that the cut run continues from"
        assert lines[4]["filter/stale_groups"] > 0.0


@pytest.fixture
def one_step_off(validating) -> RunConfig:
    return changed(validating, {"rollout.staleness": 1})


def versions(run: RunDirectory) -> list[set[int]]:
    """[step] -> the versions of the weights that sampled its rollouts."""
    return [{record.policy_version for record in read_rollouts(path)} for _, path in step_files(run.rollouts(0).parent)]


def test_one_step_off_a_run_cut_in_two_leaves_what_an_unbroken_one_leaves(open_loop, one_step_off, tmp_path):
    """Steps 1 and 2 learn from what the first weights sample, and every later one from what was sampled before the
    update of the step before it; the batch that waits is part of the checkpoint."""
    whole, cut = whole_and_cut(open_loop, tmp_path, config=one_step_off)
    assert (cut.checkpoints / "step-000003" / PENDING_FILE).is_file()
    assert versions(whole) == [{0}, {0}, {1}, {2}, {3}, {4}]
    lines = [line for line in read(whole.metrics) if line["step"] > 0]
    assert [line["off_policy/staleness"] for line in lines] == [0, 1, 1, 1, 1, 1]
    assert all(line["agreement/log_prob_gap_max"] < 2e-5 for line in lines)


def test_one_step_off_rollouts_after_the_checkpoint_are_not_generated_again(open_loop, one_step_off, tmp_path):
    """Step 3 was recorded, and the rollouts of step 4 were not: the weights after step 2 sample them again."""
    run = trained_again(open_loop, tmp_path, lost=(2, 3), config=one_step_off)
    assert steps_repeated(run) == [1, 2, 3]
    assert ["generate_s" in line for line in read(run.timings)] == [False, False, True]


def test_one_step_off_without_moments_what_the_saved_weights_sample_is_repeated(
    open_loop, one_step_off, worker, monkeypatch, tmp_path
):
    run = cut_after_a_model_only_checkpoint(one_step_off, open_loop, worker, monkeypatch, tmp_path)
    assert steps_repeated(run) == [5], "the batch of step 4 is in the checkpoint of step 3"
    assert not run.repeated_rollouts(0).parent.exists()


def test_one_step_off_a_longer_run_is_the_one_that_it_would_have_been(open_loop, one_step_off, tmp_path):
    whole, longer = tmp_path / "whole", tmp_path / "longer"
    short = changed(one_step_off, {"trainer.max_steps": 2})
    open_loop(whole, config=one_step_off).train_epoch(1)
    open_loop(longer, config=short).train_epoch(1)
    open_loop(longer, config=one_step_off).train_epoch(1)
    assert differences(results(whole, last=3), results(longer, last=3)) == []


def test_policy_and_critic_continue_where_they_were(open_loop, validating, worker, monkeypatch, tmp_path):
    """With KL in the reward; the run is cut before the critic's warm-up ends."""
    algorithm = AlgorithmConfig(advantage=GAE(lam=0.95), kl=KLConfig(coef=0.05, use_kl_loss=False))
    config = changed(
        validating,
        {
            "algorithm": algorithm,
            "critic": CriticConfig(global_batch_size=4, ppo_epochs=2, optim=OptimConfig(lr=1e-3)),
            "trainer.critic_warmup": 5,
        },
    )
    monkeypatch.setattr(worker.trainer, "config", config)
    monkeypatch.setattr(worker.trainer, "critic", None)
    worker.load("reference", worker.trainer.base_folder)
    whole, _ = whole_and_cut(open_loop, tmp_path, config=config)
    assert any(name.startswith("checkpoints/step-000006/critic/") for name in results(whole.root))
    lines = [line for line in read(whole.metrics) if "critic/vf_loss" in line]
    assert ["actor/grad_norm" in line for line in lines] == [False] * 4 + [True] * 2


def test_a_stop_writes_a_checkpoint_after_the_current_step(open_loop, tmp_path):
    stop = StopRequest()
    with pytest.raises(Interrupted) as caught, stopped_in_a_step(stop):
        open_loop(tmp_path, stop=stop).train_epoch(1)
    assert caught.value.exit_code == 143
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000001"]


class Watched(SilentProgress):
    """A bar that passes on with which words it is moved."""

    def __init__(self, moved: Callable[[str, Now | None], None]) -> None:
        self._moved = moved

    @contextmanager
    def bar(self, description: str, total: int | None) -> Iterator[Advance]:
        yield lambda count=1, figures="", now=None: self._moved(figures, now)


def test_a_stop_that_comes_after_the_save_waits_for_the_next_checkpoint(open_loop, tmp_path):
    stop = StopRequest()

    def moved(figures, now):
        if figures:  # which the bar gets right after the save
            stop.signum = signal.SIGTERM

    with pytest.raises(Interrupted):
        open_loop(tmp_path, stop=stop, progress=Watched(moved)).train_epoch(1)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000002"]


def test_a_step_says_what_it_does_while_it_does_it(open_loop, validating, tmp_path, monkeypatch):
    """And every token that is recorded was counted."""
    monkeypatch.setattr("rl_core.progress._SECONDS_BETWEEN_LOOKS", 0.001)
    shown, before = [], TALLY.copy()
    open_loop(tmp_path, progress=Watched(lambda _, now: shown.append(now.words if now else ""))).train_epoch(1)
    run, done = RunDirectory(tmp_path), TALLY.since(before)
    responses = validating.data.rollout_batch_size * validating.rollout.n
    speed, left = r"[\d,]+ tokens/s", r"[\d.]+ m?s left"
    for words in (
        rf"step 1: generating, \d+ of {responses} responses, {speed}",
        rf"step 1: update, \d+ %, {speed}",
        rf"step 2: generating, \d+ of {responses} responses, {speed}, {left}",
        r"step 3: validation(, .*left)?",
    ):
        assert any(re.fullmatch(words, one) for one in shown), (words, {*shown})
    assert not [one for one in shown if one.startswith("step 1:") and "left" in one]
    rollouts = [rollout for path in run.root.glob("rollouts/*.parquet") for rollout in read_rollouts(path)]
    items = [item for path in run.root.glob("validations/*.parquet") for item in read_items(path)]
    assert done.sampled == sum(len(one.response_ids) for one in rollouts) + sum(item.length for item in items)
    assert (done.responses, done.under_way) == (len(rollouts) + len(items), 0)


def test_a_stop_that_comes_while_the_generator_starts_waits_for_no_step(open_loop, worker, monkeypatch, tmp_path):
    stop, wake = StopRequest(), worker.wake

    def stopped_in_the_start():
        wake()
        stop.signum = signal.SIGTERM

    monkeypatch.setattr(worker, "wake", stopped_in_the_start)
    with pytest.raises(Interrupted):
        open_loop(tmp_path, stop=stop).train_epoch(1)
    assert not (tmp_path / "rollouts").exists() and not worker.generator.is_awake


def test_a_step_runs_while_the_checkpoint_before_it_is_written(open_loop, worker, monkeypatch, tmp_path):
    """The write of step 2 goes on only when step 3 learns."""
    learning = threading.Event()
    original_write, original_learn = worker.write_snapshot, training_loop.learn

    def write(folder):
        assert folder.name.startswith(".step-000003") or learning.wait(60), "step 3 waited for the checkpoint of step 2"
        return original_write(folder)

    def learn(*args, step, **kwargs):
        if step == 3:
            learning.set()
        return original_learn(*args, step=step, **kwargs)

    monkeypatch.setattr(worker, "write_snapshot", write)
    monkeypatch.setattr(training_loop, "learn", learn)
    open_loop(tmp_path).train_epoch(1)
    assert learning.is_set()
    assert [path.name for path in sorted((tmp_path / "checkpoints").iterdir())] == ["step-000002", "step-000003"]


def test_a_checkpoint_that_could_not_be_written_ends_the_next_step_before_its_record(
    open_loop, worker, monkeypatch, tmp_path
):
    def write(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(worker, "write_snapshot", write)
        with pytest.raises(OSError) as full:
            open_loop(tmp_path).train_epoch(1)
    assert full.value.errno == errno.ENOSPC
    assert [line["step"] for line in read(tmp_path / "metrics.jsonl")] == [0, 1, 2]
    assert list((tmp_path / "checkpoints").iterdir()) == []
    open_loop(tmp_path).train_epoch(1)
    assert (tmp_path / "checkpoints/step-000003/manifest.json").is_file()


def test_an_epoch_that_is_done_gives_its_metrics_and_is_not_trained_again(open_loop, tmp_path):
    loop = open_loop(tmp_path)
    first = loop.train_epoch(1)
    loop.train_epoch(2)
    lines = (tmp_path / "metrics.jsonl").read_bytes()
    assert loop.train_epoch(1).metrics == first.metrics
    assert (tmp_path / "metrics.jsonl").read_bytes() == lines


def test_the_best_checkpoint_goes_by_the_validation_of_its_step(open_loop, tmp_path):
    open_loop(tmp_path).train_epoch(1)
    scores = {
        path.parent.name: json.loads(path.read_text())["info"]["validation_score"]
        for path in (tmp_path / "checkpoints").glob("*/manifest.json")
    }
    lines = {line["step"]: line for line in read(tmp_path / "metrics.jsonl")}
    assert scores == {"step-000002": None, "step-000003": lines[3]["val/accuracy"]}


def test_non_finite_gradients_in_a_row_end_the_run(open_loop, tmp_path, monkeypatch, validating):
    original = training_loop.learn

    def never_finite(*args, **kwargs):
        return dataclasses.replace(original(*args, **kwargs), nonfinite_streak=validating.trainer.max_nonfinite_steps)

    monkeypatch.setattr(training_loop, "learn", never_finite)
    with pytest.raises(NonFiniteGradients, match="step 1"):
        open_loop(tmp_path).train_epoch(1)


def test_a_run_whose_rewards_are_all_equal_says_so_and_ends_where_it_is_asked_to(
    open_loop, tmp_path, validating, caplog
):
    (tmp_path / "constant.py").write_text("def score(sample):\n    return {'overall': 0.25, 'accuracy': 0.0}\n")
    never_validating = changed(validating, {"trainer.val_freq": -1, "trainer.stop_without_signal": 3})
    config = changed(never_validating, {"reward.function": f"{tmp_path / 'constant.py'}:score"})
    with RewardPool(config.reward) as pool, pytest.raises(NoSignal, match="step 3: 3 steps in a row"):
        open_loop(tmp_path, config=config, pool=pool).train_epoch(1)
    (event,) = (event for event in read(tmp_path / "events.jsonl") if event["kind"] == "no-signal")
    assert event["step"] == 2 and event["why"] in caplog.text
    assert "the reward is 0.25 for every response" in event["why"] or "cut at rollout" in event["why"]


def test_a_target_ends_the_training_even_where_the_last_steps_teach_nothing(open_loop, tmp_path, validating):
    (tmp_path / "constant.py").write_text("def score(sample):\n    return {'overall': 1.0, 'accuracy': 1.0}\n")
    reward = validating.reward.model_copy(update={"function": f"{tmp_path / 'constant.py'}:score"})
    stop_at = StopAt(metric="reward/accuracy", value=1.0, patience=3)
    trainer = validating.trainer.model_copy(update={"val_freq": -1, "stop_without_signal": 3, "stop_at": stop_at})
    config = validating.model_copy(update={"reward": reward, "trainer": trainer})
    with RewardPool(reward) as pool:
        result = open_loop(tmp_path, config=config, pool=pool).train_epoch(1)
    assert result.reached_target and result.checkpoint is not None and result.last_step == 3
    (event,) = (event for event in read(tmp_path / "events.jsonl") if event["kind"] == "target-reached")
    assert event["step"] == 3 and event["why"] == "reward/accuracy is 1 (trainer.stop_at)"


def test_a_reward_gets_the_step(open_loop, worker, prepared_run, tmp_path, validating):
    (tmp_path / "by_step.py").write_text(
        "def score(sample):\n    return {'overall': len(sample.response) % 2, 'accuracy': 0.0, 'step': sample.step}\n"
    )
    config = changed(validating, {"reward.function": f"{tmp_path / 'by_step.py'}:score"})
    run = RunDirectory(tmp_path)
    with RewardPool(config.reward) as pool:
        loop = small_loop(tmp_path, config, worker, prepared_run, rewards=pool, judges=pool)
        loop.train_epoch(1)
    sampled = {step: read_rollouts(run.rollouts(step)) for step, _ in step_files(run.rollouts(0).parent)}
    held_out = {step: read_items(run.validation(step)) for step, _ in step_files(run.validation(0).parent)}
    assert sorted(sampled) == [1, 2, 3] and sorted(held_out) == [0, 3]
    for by_step in (sampled, held_out):
        assert all(scored.components["step"] == step for step, records in by_step.items() for scored in records)


def test_too_many_failed_rewards_name_the_first_reasons():
    errors = [f"p sample {index}: ValueError: no number" for index in range(2)]
    check_failed_share(errors, 10, max_failed_share=0.2)
    with pytest.raises(TooManyFailures, match=r"(?s)2 of 10 rewards failed.*p sample 0: ValueError: no number"):
        check_failed_share(errors, 10, max_failed_share=0.1)


@pytest.mark.parametrize(("max_steps", "spans"), [(None, [(1, 4), (5, 8)]), (6, [(1, 4), (5, 6)]), (3, [(1, 3)])])
def test_epochs_are_cut_at_the_last_step(config, max_steps, spans):
    cut = changed(config, {"trainer.total_epochs": 2, "trainer.max_steps": max_steps})
    assert [epoch_span(epoch + 1, spans=EpochSpans(steps=4), config=cut) for epoch in range(len(spans))] == spans


@pytest.mark.parametrize(
    ("max_steps", "epoch_ends", "saved"),
    [
        (None, True, [3, 4, 6, 8, 9, 12]),
        (None, False, [3, 6, 9, 12]),
        (11, True, [3, 4, 6, 8, 9, 11]),
        (11, False, [3, 6, 9, 11]),
        (2, False, [2]),
    ],
)
def test_the_ends_of_epochs_are_saved_if_asked_for_and_the_last_step_always(config, max_steps, epoch_ends, saved):
    update = {"total_epochs": 3, "max_steps": max_steps, "save_freq": 3, "save_on_epoch_end": epoch_ends}
    chosen = config.model_copy(update={"trainer": config.trainer.model_copy(update=update)})
    steps = range(1, (max_steps or 12) + 1)
    assert [step for step in steps if is_saved(step, spans=EpochSpans(steps=4), config=chosen)] == saved
