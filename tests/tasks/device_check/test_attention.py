"""The check of attention passes what is right and names what is wrong."""

from pathlib import Path

import torch

from rl_core.models.tree_attention import tree_sdpa
from tasks.device_check.attention import attention_finding, attention_findings, attention_forms
from tasks.device_check.check import Setting

CPU = torch.device("cpu")


def test_every_form_of_a_cpu_is_right(tmp_path: Path) -> None:
    findings = list(attention_findings(Setting(folder=tmp_path)))
    assert {finding.verdict for finding in findings} == {"ok"}
    assert len(findings) == 2


def test_on_a_gpu_the_kernel_of_bfloat16_runs_is_checked_too() -> None:
    forms = [(name, dtype) for name, _, dtype in attention_forms(torch.device("cuda"))]
    assert forms == [("sdpa", torch.float32), ("sdpa", torch.bfloat16), ("varlen", torch.bfloat16)]


def test_a_form_with_wrong_scores_fails_with_advice() -> None:
    def slightly_wrong(*states: torch.Tensor, scale: float, **options: object) -> torch.Tensor:
        return tree_sdpa(*states, scale=1.001 * scale, **options)  # type: ignore[arg-type]

    finding = attention_finding("wrong", slightly_wrong, torch.float32, CPU)
    assert finding.verdict == "fails"
    assert "model.attention" in finding.advice
