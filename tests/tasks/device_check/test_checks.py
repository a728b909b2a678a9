"""A check that fails or breaks off is a row of the table; tests/flows/commands/test_device.py makes all checks."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_core.config import tolerances
from tasks.device_check import checks, generation
from tasks.device_check.finding import Finding
from tasks.device_check.generation import agreement_findings
from tasks.device_check.training import training_findings
from tasks.device_check.trial import prepare_trial
from tests.rl_core.planning.gpu_driver import put_driver


def test_log_probs_beyond_the_bound_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = dataclasses.replace(tolerances.AGREEMENT["float32"], mean=1e-12)
    monkeypatch.setattr(generation, "AGREEMENT", {"float32": exact})
    (finding,) = agreement_findings(prepare_trial(tmp_path / "run", "float32"))
    assert finding.verdict == "fails"
    assert "bound 1e-12" in finding.measured


def test_three_steps_run_and_the_third_is_repeated_from_its_checkpoint(tmp_path: Path) -> None:
    steps, repeated = training_findings(prepare_trial(tmp_path / "run", "float32"))
    assert (steps.verdict, repeated.verdict) == ("ok", "ok"), (steps, repeated)
    assert "equal to the bit" in repeated.measured


def test_a_gpu_on_which_torch_does_not_compute_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (without,) = checks.driver_findings()
    assert without.verdict == "not applicable"
    put_driver(tmp_path, monkeypatch, "81559, NVIDIA H100 80GB HBM3")
    (found,) = checks.driver_findings()
    assert found.verdict == "fails" and "built without CUDA" in found.measured and "make install" in found.advice


def test_a_check_that_breaks_off_fails_and_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks_off(*_: object) -> Iterator[Finding]:
        yield Finding(check="before", verdict="ok", measured="")
        raise RuntimeError("an illegal memory access was encountered")

    for name in ("attention_findings", "_float32_findings", "_bfloat16_findings"):
        monkeypatch.setattr(checks, name, breaks_off)
    findings = list(checks.device_findings())
    broken = [finding for finding in findings if finding.verdict == "fails"]
    assert [finding.check for finding in broken] == ["attention", "a model in float32", "a model in bfloat16"]
    assert "RuntimeError: an illegal memory access" in broken[0].measured
    assert findings[-1].verdict == "measured"
