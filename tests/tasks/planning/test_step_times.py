"""Which placements a plan compares, and which steps of a run show the speed of its devices."""

from pathlib import Path
from typing import Any

import pytest

from flows.commands.plan import step_time_table
from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.planning.gpu import CARDS, Gpu
from rl_core.planning.model_sizes import model_sizes
from rl_core.records.metrics_log import RunLogs
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock
from tasks.planning.step_times import Forecaster, measured_steps, step_forecaster

CONFIGS = Path(__file__).parents[3] / "configs"
METRICS = {
    "prompt_length/mean": 40.0,
    "response_length/mean": 9.0,
    "response_length/max": 12.0,
    "reward/overall": 0.5,
}
TWO = {"device": ["CPU with 1 thread(s)"] * 2, "load_s": [0.0, 0.0]}
COLOCATED = {**TWO, "generate_s": [0.3, 0.4], "update_s": [0.6, 0.5]}
SPLIT = {**TWO, "generate_s": [0.0, 0.7], "update_s": [1.0, 0.0]}
H100 = Gpu(memory_gib=CARDS["h100"].memory_gib, name=CARDS["h100"].name)
RTX_4090 = Gpu(memory_gib=24.0, name="NVIDIA GeForce RTX 4090")


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


def quickstart(*overrides: str) -> RunConfig:
    return load_config(CONFIGS / "quickstart.yaml", overrides)


def forecaster_of(config: RunConfig, run: RunDirectory, gpu: Gpu | None) -> Forecaster:
    found, words = step_forecaster(config, model_sizes(config.model.source), run, gpu)
    assert found is not None, words
    return found


def names(config: RunConfig, run: RunDirectory, gpu: Gpu | None = H100) -> list[str]:
    (column, *_) = step_time_table(config, forecaster_of(config, run, gpu), "").columns
    return [str(cell).removesuffix(", fastest") for cell in column.cells]


def test_a_single_device_has_one_placement(run: RunDirectory) -> None:
    assert names(quickstart(), run) == ["colocated"]


def test_two_devices_can_be_split_and_work_at_the_same_time(run: RunDirectory) -> None:
    expected = ["colocated", "split, 1 of 2 generate", "split, 1 of 2 generate, one step off"]
    assert names(quickstart("cluster.devices=2"), run) == expected


def test_the_number_of_generating_devices_is_the_best_or_the_configured_one(run: RunDirectory) -> None:
    config = quickstart("cluster.devices=4")
    known = forecaster_of(config, run, H100)
    *_, best = known.placements(config)
    for number in (1, 2, 3):
        split = quickstart(f"cluster={{devices: 4, placement: split, generating_devices: {number}}}")
        *_, configured = known.placements(split)
        assert configured.cluster.generating_devices == number
        assert known.step_time(configured).step >= known.step_time(best).step


@pytest.mark.parametrize(
    ("overrides", "left_out"),
    [
        (["algorithm.old_log_probs=recompute"], "one step off"),
        (["algorithm.advantage.type=gae", "critic={global_batch_size: 8}"], "one step off"),
        (["cluster.tensor_parallel_size=2"], "split"),
        (["cluster.min_workers=1"], "split"),
    ],
)
def test_placements_that_a_plan_would_refuse_are_left_out(
    run: RunDirectory, overrides: list[str], left_out: str
) -> None:
    found = names(quickstart("cluster.devices=2", *overrides), run)
    assert found[0] == "colocated"
    assert not any(left_out in name for name in found)


def test_a_split_without_room_for_the_trainer_is_left_out(run: RunDirectory) -> None:
    large = ["cluster.devices=2", "model.source.path=Qwen/Qwen2.5-VL-32B-Instruct"]
    assert names(load_config(CONFIGS / "baselines" / "qwen2_5_vl_7b_geo3k_grpo.yaml", large), run) == ["colocated"]


@pytest.mark.parametrize(("device", "gpu"), [("CPU with 1 thread(s)", None), (RTX_4090.name, RTX_4090)])
def test_the_runs_own_steps_are_given_back_and_carried_over_to_other_placements(
    run: RunDirectory, device: str, gpu: Gpu | None
) -> None:
    """From steps of two workers in turn: one of them takes about twice as long for what both did, on a GPU of which
    nothing is published as on a CPU."""
    workers = {**COLOCATED, "device": [device] * 2}
    record(run, workers, workers)
    config = quickstart("cluster.devices=2")
    found, words = step_forecaster(config, model_sizes(config.model.source), run, gpu)
    assert found is not None
    assert words == "prompts of 40 and responses of 9 tokens (the run's own steps), measured in 2 steps of this run"
    colocated, split, ahead = map(found.step_time, found.placements(config))
    assert (colocated.generate, colocated.update, colocated.sync) == (pytest.approx(0.4), pytest.approx(0.6), 0.1)
    assert colocated.step == pytest.approx(1.5)
    assert 0.7 < split.generate <= 0.8 and split.update == pytest.approx(1.2, rel=0.02)
    assert ahead.step < split.step


def test_only_ordinary_steps_of_the_same_placement_are_measured(run: RunDirectory) -> None:
    start, repeated = {**COLOCATED, "load_s": [0.2, 0.2]}, {**COLOCATED, "generate_s": [0.0, 0.0]}
    record(run, start, repeated, SPLIT, COLOCATED)
    (step,) = measured_steps(run, quickstart("cluster.devices=2"), None)
    assert (step.generate, step.update) == (0.4, 0.6)
    split = quickstart("cluster={devices: 2, placement: split}", "rollout.staleness=1")
    (ahead,) = measured_steps(run, split, None)
    assert ahead.is_overlapped and ahead.other == pytest.approx(1.5 - 0.1 - 1.0)


def test_of_steps_on_other_devices_only_the_lengths_are_measured(run: RunDirectory) -> None:
    record(run, COLOCATED)
    for workers, gpu in ((1, None), (2, Gpu(memory_gib=80.0)), (2, H100)):
        assert measured_steps(run, quickstart(f"cluster.devices={workers}"), gpu) == []
    config = quickstart("planning={mean_response_length: 4}")
    _, words = step_forecaster(config, model_sizes(config.model.source), run, H100)
    assert words.startswith(
        "prompts of 40 and responses of 9 tokens (the run's own steps), assumed from the data sheet"
    )
    assert "at 70% of its bandwidth and 30% of its arithmetic, 75% of a prompt images" in words


def test_other_lengths_are_forecast_besides_the_expected_one(run: RunDirectory) -> None:
    config = quickstart()
    found = forecaster_of(config, run, H100)
    seconds = [
        found.step_time(config, response=share * config.rollout.max_response_length).step for share in (0.25, 0.5)
    ]
    assert seconds[0] < seconds[1] == found.step_time(config).step


def test_a_gpu_of_which_nothing_is_known_is_named(run: RunDirectory) -> None:
    config = quickstart()
    sizes = model_sizes(config.model.source)
    _, words = step_forecaster(config, sizes, run, RTX_4090)
    assert "nothing is known of the speed of NVIDIA GeForce RTX 4090; name one like it with --gpu" in words
    assert words.endswith(", or plan again after some steps")
    _, words = step_forecaster(config, sizes, run, Gpu(memory_gib=80.0, is_elsewhere=True))
    assert "the kind of GPU is not known" in words
    assert step_forecaster(config, None, run, H100)[1].startswith("not known: the model is not here")
    assert step_forecaster(config, sizes, run, None)[1].startswith(
        "not known: nothing is published of this CPU's speed"
    )
