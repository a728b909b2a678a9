"""The checks find what they are there to find; tests/flows/commands/test_device.py makes all of them (slow)."""

import dataclasses
from pathlib import Path

import pytest

from rl_core.config import tolerances
from rl_core.config.cluster import ClusterConfig
from rl_core.config.loading import dump_config
from tasks.device_check import trial, variants
from tasks.device_check.check import Finding, Setting, against_plan
from tasks.device_check.generation import agreement_findings
from tasks.device_check.software import software_findings
from tasks.device_check.speed import bandwidth_findings, speed_finding
from tasks.device_check.variants import training_findings
from tests.rl_core.planning.gpu_driver import put_driver
from tests.rl_core.small_run import small_config


def test_log_probs_beyond_the_bound_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = dataclasses.replace(tolerances.AGREEMENT["float32"], mean=1e-12)
    monkeypatch.setattr(trial, "AGREEMENT", {"float32": exact})
    (finding,) = agreement_findings(Setting(folder=tmp_path), "float32")
    assert finding.verdict == "fails"
    assert "bound 1e-12" in finding.measured


@pytest.mark.slow
def test_three_steps_run_and_the_third_is_repeated_from_its_checkpoint(tmp_path: Path) -> None:
    steps, repeated = training_findings(Setting(folder=tmp_path))
    assert (steps.verdict, repeated.verdict) == ("ok", "ok"), (steps, repeated)
    assert "equal to the bit" in repeated.measured


def test_a_gpu_on_which_torch_does_not_compute_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_driver(tmp_path, monkeypatch, "81559, NVIDIA H100 80GB HBM3")
    (found,) = software_findings(Setting(folder=tmp_path))
    assert found.verdict == "fails" and "built without CUDA" in found.measured and "make install" in found.advice


def test_a_gpu_that_the_config_does_not_use_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_driver(tmp_path, monkeypatch, "81559, NVIDIA H100 80GB HBM3")
    file = tmp_path / "run.yaml"
    file.write_text(dump_config(small_config().model_copy(update={"cluster": ClusterConfig(device="cpu")})))
    (found,) = software_findings(Setting(folder=tmp_path, config=file))
    assert found.verdict == "ok" and "cluster.device: cpu" in found.measured


def test_a_gradient_that_offloading_changes_fails_with_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    norms = iter(([1.0, 1.0], [1.0, 1.0], [1.0, 1.001]))  # of none, optimizer, all
    monkeypatch.setattr(variants, "gradient_norms", lambda *_: next(norms))
    right, wrong = variants.offload_findings(Setting(folder=tmp_path))
    assert (right.verdict, wrong.verdict) == ("ok", "fails")
    assert "trainer.offload: none" in wrong.advice


def test_two_processes_add_up_a_tensor(tmp_path: Path) -> None:
    (finding,) = bandwidth_findings(Setting(folder=tmp_path, devices=2))
    assert finding.verdict == "ok"
    assert float(finding.figures["bytes_per_second"]) > 0.0


def test_a_speed_that_no_device_has_fails() -> None:
    def verdict(rate: float) -> str:
        return speed_finding("products", f"{rate}", rate=rate, most=989.0, figures={}).verdict

    assert [verdict(rate) for rate in (400.0, 989.0, 41_000.0)] == ["measured", "measured", "fails"]


def test_more_than_planned_fails_with_a_key_and_less_is_only_measured() -> None:
    def of(measured: float) -> Finding:
        return against_plan("memory", measured, 10.0, advice="set a key")

    assert [of(gib).verdict for gib in (8.9, 9.1, 10.9, 11.1)] == ["measured", "ok", "ok", "fails"]
    assert of(11.1).advice == "set a key"
