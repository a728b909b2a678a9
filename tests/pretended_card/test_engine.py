"""The product's engine on a pretended card: what vLLM chooses, and what a sleep of level 2 loses."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.pretended_card.card import Card
from tests.pretended_card.conftest import ROOT


def _witness(card: Card, folder: Path, *, dtype: str, eager: bool, gib: float) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "tests.pretended_card.engine",
        str(folder),
        json.dumps({"dtype": dtype, "eager": eager}),
    ]
    environment = card.environment(gib=gib, is_undefined_after_wake=True)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _check_rounds(found: dict[str, Any], *, card_bytes: float) -> None:
    for number, one in enumerate(found["rounds"]):
        assert one["responses"] == (16 if number == 0 else 2)
        assert one["banned"] == [], "a banned token was sampled"
        assert one["undefined"] == [], "memory that a sleep has dropped was not written again"
        assert one["free_asleep"] > 0.8 * card_bytes, "a sleeping engine keeps memory"
        assert one["free_awake"] < 0.7 * card_bytes
        assert 0 < one["update_bytes"] < 0.1 * card_bytes, "a sleeping engine counts as memory of the update"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("dtype", "attention", "bound"), [("float32", "TRITON_ATTN", 2e-5), ("bfloat16", "FLASH_ATTN", 0.1)]
)
def test_generator_and_trainer_agree_after_every_sleep(
    card: Card, tmp_path: Path, dtype: str, attention: str, bound: float
) -> None:
    found = _witness(card, tmp_path / "run", dtype=dtype, eager=True, gib=5.0)
    chosen = found["chosen"]
    assert chosen["runner"] == "vllm.v1.worker.gpu.model_runner"
    assert (chosen["executor"], chosen["attention"]) == ("UniProcExecutor", [attention])
    assert chosen["async_scheduling"] and chosen["head_dtype"] == "torch.float32"
    _check_rounds(found, card_bytes=5.0 * 2**30)
    assert max(one["largest_gap"] for one in found["rounds"]) < bound


@pytest.mark.timeout(900)
def test_a_compiled_engine_captures_its_graphs_and_replays_them(card: Card, tmp_path: Path) -> None:
    found = _witness(card, tmp_path / "run", dtype="bfloat16", eager=False, gib=5.0)
    assert found["chosen"]["graphs"] == "FULL_AND_PIECEWISE"
    _check_rounds(found, card_bytes=5.0 * 2**30)
    graphs = card.calls()["graph"]
    assert graphs["captured"] > 50 and graphs["launched"] > 0
    assert card.kernels("flash") > 0, "FlashAttention's kernels were not launched"
