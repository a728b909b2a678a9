"""Which steps of a run tell of the speed of its devices, and on which workers they were made."""

from pathlib import Path
from typing import Any

import pytest

from rl_core.config.loading import load_config
from rl_core.planning.gpu import Gpu
from rl_core.planning.gpu_cards import CARDS
from rl_core.planning.model_sizes import model_sizes
from rl_core.planning.placement_times import fastest
from rl_core.planning.step_work import Lengths
from rl_core.records.metrics_log import RunLogs
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock
from tasks.planning.step_times import step_times
from tasks.results.measured_steps import measured_steps

QUICKSTART = Path(__file__).parents[3] / "configs" / "quickstart.yaml"
METRICS = {
    "prompt_length/mean": 40.0,
    "response_length/mean": 9.0,
    "response_length/max": 12.0,
    "reward/overall": 0.5,
}
TWO = {"device": ["CPU with 1 thread(s)"] * 2, "load_s": [0.0, 0.0]}
COLOCATED = {**TWO, "generate_s": [0.3, 0.4], "update_s": [0.6, 0.5]}
SPLIT = {**TWO, "generate_s": [0.0, 0.7], "update_s": [1.0, 0.0]}


@pytest.fixture
def run(tmp_path: Path):
    run = RunDirectory(tmp_path / "run")
    run.root.mkdir()
    with RunLock(run.lock):
        yield run


def record(run: RunDirectory, *columns: dict[str, Any], **phases: float) -> None:
    logs = RunLogs(run)
    for step, workers in enumerate(columns, start=1):
        logs.log_timing(step, {"total_s": 1.5, "sync_s": 0.1, **phases}, workers=workers)
        logs.log_step(step, METRICS)


def test_each_step_has_the_workers_that_it_was_made_by(run: RunDirectory) -> None:
    record(run, COLOCATED, SPLIT)
    config = load_config(QUICKSTART, ["cluster.devices=2"])
    together, apart = measured_steps(run, config, in_flight=512, gpu=None)
    assert (together.arrangement.generators, together.arrangement.learners) == (2, 2)
    assert not together.arrangement.is_split
    assert (together.generate, together.update, together.sync) == (0.4, 0.6, 0.1)
    assert together.other == pytest.approx(0.4)
    assert (apart.arrangement.generators, apart.arrangement.learners) == (1, 1)
    assert apart.arrangement.is_split and not apart.arrangement.is_overlapped
    assert apart.work.lengths == Lengths(prompt=40.0, response=9.0, longest=12.0)


def test_the_exchange_of_gradients_is_known_where_it_was_timed(run: RunDirectory) -> None:
    record(run, COLOCATED, exchange_s=0.05)
    config = load_config(QUICKSTART, ["cluster.devices=2"])
    (timed,) = measured_steps(run, config, in_flight=512, gpu=None)
    assert (timed.exchange, timed.arrangement.replicas) == (0.05, 2), "whatever the config has now"
    assert timed.passes == pytest.approx(0.6 - 0.05)


def test_one_step_off_the_comparison_is_no_part_of_the_batch(run: RunDirectory) -> None:
    """Of 0.3 s in which generator and trainer were compared, the trainer worked 0.1 s."""
    record(run, SPLIT, agreement_s=0.3, forward_backward_s=0.85, optimizer_s=0.05, update_s=0.02)
    config = load_config(QUICKSTART, ["cluster.devices=2", "rollout.staleness=1"])
    (step,) = measured_steps(run, config, in_flight=512, gpu=None)
    assert step.arrangement.is_overlapped and step.compare == 0.3
    assert (step.update, step.generate) == (pytest.approx(0.9), pytest.approx(0.5))
    assert step.other == pytest.approx(1.5 - 0.1 - 0.3 - 0.9)


def test_a_start_and_rollouts_that_were_repeated_tell_nothing(run: RunDirectory) -> None:
    record(run, {**COLOCATED, "load_s": [0.2, 0.2]}, {**COLOCATED, "generate_s": [0.0, 0.0]}, COLOCATED)
    config = load_config(QUICKSTART, ["cluster.devices=2"])
    assert len(measured_steps(run, config, in_flight=512, gpu=None)) == 1


def test_other_devices_tell_nothing(run: RunDirectory) -> None:
    record(run, COLOCATED)
    for workers, gpu in ((1, None), (2, Gpu(memory_gib=80.0)), (2, Gpu(memory_gib=80.0, name="NVIDIA H200"))):
        config = load_config(QUICKSTART, [f"cluster.devices={workers}"])
        assert measured_steps(run, config, in_flight=512, gpu=gpu) == []


def test_a_plan_takes_the_seconds_of_the_runs_own_steps(run: RunDirectory) -> None:
    config = load_config(QUICKSTART, ["cluster.devices=2"])
    assert step_times(config, None, run, None).told.startswith("not known: nothing is published of this CPU's speed")
    record(run, COLOCATED, COLOCATED)
    times = step_times(config, None, run, None)
    assert "measured in 2 steps of this run" in times.told
    assert times.lengths == "prompts of 40 and responses of 9 tokens (the run's own steps)"
    colocated, split, ahead = times.placements
    assert colocated.time.generate == pytest.approx(0.4) and colocated.time.update == pytest.approx(0.6)
    assert colocated.time.step == pytest.approx(1.5)
    assert split.time.generate == pytest.approx(0.8, rel=0.02), "one of them does what two did"
    assert ahead.time.step < split.time.step


def test_lengths_are_the_runs_own_on_whatever_devices_else_those_that_were_planned(run: RunDirectory) -> None:
    """Seconds of other devices tell nothing, but the lengths of what was sampled there do."""
    config, card = load_config(QUICKSTART), CARDS["h100"]
    sizes, gpu = model_sizes(config.model.source), Gpu(memory_gib=card.memory_gib, name=card.name)
    half = step_times(config, sizes, run, gpu)
    assert half.lengths == "prompts of 32 and responses of 6 tokens (50% of the longest)"
    planned = load_config(QUICKSTART, ["planning={mean_response_length: 4}"])
    assert step_times(planned, sizes, run, gpu).lengths == (
        "prompts of 32 (50% of the longest) and responses of 4 tokens (planning)"
    )
    record(run, COLOCATED, COLOCATED)
    times = step_times(planned, sizes, run, gpu)
    assert times.lengths == "prompts of 40 and responses of 9 tokens (the run's own steps)"
    assert times.told.startswith("assumed from the data sheet of NVIDIA H100")


def test_other_lengths_are_forecast_beside_the_expected_one(run: RunDirectory) -> None:
    config, card = load_config(QUICKSTART), CARDS["h100"]
    sizes, gpu = model_sizes(config.model.source), Gpu(memory_gib=card.memory_gib, name=card.name)
    times = step_times(config, sizes, run, gpu)
    longest = config.rollout.max_response_length
    assert [*times.by_length] == [longest / 4, longest / 2, longest]
    seconds = [*times.by_length.values()]
    assert seconds == sorted(seconds) and seconds[1] == fastest(times.placements).time.step


def test_a_gpu_of_which_nothing_is_known_is_named(run: RunDirectory) -> None:
    config = load_config(QUICKSTART)
    sizes = model_sizes(config.model.source)
    told = step_times(config, sizes, run, Gpu(memory_gib=24.0, name="NVIDIA TITAN")).told
    assert "nothing is known of the speed of NVIDIA TITAN" in told and "--gpu" in told
    told = step_times(config, sizes, run, Gpu(memory_gib=80.0, is_elsewhere=True)).told
    assert "the kind of GPU is not known" in told
    assert step_times(config, None, run, Gpu(memory_gib=80.0)).told.startswith("not known: the model is not here")
