"""vLLM with the second model runner, which it takes on an NVIDIA GPU: what it chooses there. How that runner samples,
with the ban and after a sleep, is in tests/pretended_card."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def found(tiny_folders, tmp_path_factory) -> dict[str, Any]:
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
def test_the_choices_of_vllm_on_a_gpu(found, case, attention, executor):
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


def test_an_engine_starts_until_it_asks_for_the_card(found):
    """Past vLLM's checks of its arguments, logits processors included, and past the import of worker and runner."""
    assert found["end"].startswith("init_device: ") and "0 devices" in found["end"], found["end"]
