"""vLLM with the second model runner, which it takes on an NVIDIA GPU: what it chooses there, and how it samples."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.rl_core.rollout.pretended_cuda import BANNED

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def found(tiny_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("pretended") / "found.json"
    module = "tests.rl_core.rollout.pretended_cuda"
    command = [sys.executable, "-m", module, str(tiny_folders["qwen2_5_vl"]), str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    parsed: dict[str, Any] = json.loads(file.read_text())
    return parsed


@pytest.mark.parametrize(
    ("case", "attention", "executor"),
    [
        ("bfloat16", "FLASH_ATTN", "UniProcExecutor"),
        ("float32", "TRITON_ATTN", "UniProcExecutor"),
        ("two ranks", "FLASH_ATTN", "RanksExecutor"),
    ],
)
def test_what_vllm_chooses(found: dict[str, Any], case: str, attention: str, executor: str) -> None:
    assert found[case] == {
        "second runner": True,
        "asynchronous": True,
        "graphs": "FULL_AND_PIECEWISE",
        "head": "torch.float32",
        "attention": attention,
        "executor": executor,
        "sleeps": True,
        "worker": "vllm.v1.worker.gpu_worker.Worker",
        "adds by NCCL alone": True,
    }


def test_an_engine_starts_until_it_asks_for_the_card(found: dict[str, Any]) -> None:
    """Past vLLM's checks of its arguments, logits processors included, and past the import of worker and runner."""
    assert found["end"].startswith("init_device: ") and "0 devices" in found["end"], found["end"]


def test_equal_seeds_sample_equal_tokens_and_others_do_not(found: dict[str, Any]) -> None:
    tokens = torch.tensor(found["sampler"]["tokens"])
    assert torch.equal(tokens[:, 0], tokens[:, 1])
    assert len(tokens.T.unique(dim=0)) == tokens.shape[1] - 1, "all others differ"
    assert torch.equal(torch.tensor(found["sampler"]["again"]), tokens[:1])


def test_tokens_follow_the_distribution_without_the_banned_ones(found: dict[str, Any]) -> None:
    """Pearson's statistic of the likelier tokens."""
    tokens = torch.tensor(found["sampler"]["tokens"])[:, 1:].flatten()
    expected = len(tokens) * _log_probs(found).exp()
    counts = torch.bincount(tokens, minlength=len(expected))
    likely = expected > 5
    statistic = float(((counts - expected) ** 2 / expected)[likely].sum())
    assert likely.sum() >= 6 and statistic < 34.6, "one seed in a thousand would exceed this for 13 degrees of freedom"


def test_log_probs_are_those_of_the_distribution(found: dict[str, Any]) -> None:
    tokens, log_probs = torch.tensor(found["sampler"]["tokens"]), torch.tensor(found["sampler"]["log-probs"])
    torch.testing.assert_close(log_probs, _log_probs(found)[tokens], atol=1e-5, rtol=0)


def test_a_sleep_changes_nothing_that_is_sampled(found: dict[str, Any]) -> None:
    sampler = found["sampler"]
    assert sampler["after the sleep"] == sampler["again"]
    assert sampler["positions are dropped"], "the control"
    assert sampler["positions after the sleep"] == [0], "those of padded rows point into a table"
    assert not {*BANNED} & {*torch.tensor([sampler["after the sleep"], sampler["again"]]).flatten().tolist()}


def _log_probs(found: dict[str, Any]) -> torch.Tensor:
    """[V] of every token, the banned ones included."""
    logits = torch.tensor(found["sampler"]["logits"])
    logits[BANNED] -= 100
    return logits.log_softmax(-1)
