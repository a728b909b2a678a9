"""What was chosen for a machine is in the run's record, and another choice is warned of."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.loop import machine_settings
from rl_core.loop.machine_settings import last_choices, resolve_for_this_machine
from rl_core.planning.gpu import Gpu
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from tests.rl_core.planning.test_memory import SEVEN_BILLION

QUICKSTART = Path(__file__).parents[3] / "configs" / "quickstart.yaml"


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return RunDirectory(tmp_path / "run")


@pytest.fixture
def on_machine(monkeypatch) -> Callable[[float | None], None]:
    """Lets the machine have a GPU of so many GiB, or none."""
    monkeypatch.setattr(machine_settings, "read_sizes", lambda path: SEVEN_BILLION)

    def choose(gib: float | None) -> None:
        monkeypatch.setattr(machine_settings, "find_gpu", lambda device: None if gib is None else Gpu(memory_gib=gib))

    return choose


def config(*overrides: str) -> RunConfig:
    return load_config(QUICKSTART, ["cold_start=null", "model.dtype=bfloat16", *overrides])


def events(run: RunDirectory) -> list[dict]:
    return [event for event in read(run.events) if event["kind"] == "settings"]


def test_the_first_start_records_what_was_chosen_and_the_next_one_nothing(run, on_machine, caplog):
    on_machine(None)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            resolved = resolve_for_this_machine(config(), run)
    (event,) = events(run)
    assert event["chosen"]["trainer.offload"] == "none" and event["why"] == "on a CPU" and event["changed"] == {}
    assert resolved.trainer.offload == "none"
    assert not caplog.records


def test_another_choice_on_another_machine_is_warned_of(run, on_machine, caplog):
    on_machine(79.6)
    resolve_for_this_machine(config(), run)
    before = last_choices(run)
    on_machine(200.0)
    with caplog.at_level(logging.WARNING):
        resolved = resolve_for_this_machine(config(), run)
    event = events(run)[-1]
    assert event["changed"]["trainer.offload"] == before["trainer.offload"] != resolved.trainer.offload
    assert any(
        f"trainer.offload was chosen as {before['trainer.offload']}" in record.message for record in caplog.records
    )
    assert len(caplog.records) == len(event["changed"])


def test_a_setting_that_the_config_names_is_no_choice(run, on_machine):
    on_machine(None)
    given = ["model.gradient_checkpointing=true", "trainer.offload=all", "rollout.gpu_memory_utilization=0.5"]
    micro = "actor.micro_batch_size_per_device_for_experience=2"
    fixed = config(*given, micro)
    assert resolve_for_this_machine(fixed, run) == fixed
    assert events(run) == []
