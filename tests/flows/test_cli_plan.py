"""`sightline plan` is complete, loads no large library, and refuses what cannot work."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "vllm", "prefect", "mlflow", "matplotlib", "datasets")


@pytest.fixture(autouse=True)
def _at_the_repository_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def plan(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["plan", "configs/quickstart.yaml", *arguments])
    return done.exit_code, done.output


def test_a_plan_shows_stages_batches_and_forecast(tmp_path: Path) -> None:
    code, text = plan("--runs-dir", str(tmp_path))
    assert code == 0
    text = " ".join(text.split())
    for part in (
        "train-epoch-002",
        "2048 rows / 64 = 32 steps",
        "512 responses",
        "GiB",
        "float32 throughout",
        "engine: eager (auto, on a CPU)",
    ):
        assert part in text, part
    assert "experiment: quickstart" not in text
    _, text = plan("--config", "--runs-dir", str(tmp_path))
    assert text.index("report") < text.index("experiment: quickstart"), "what matters comes first"


def test_a_plan_for_a_gpu_of_unknown_memory_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '[N/A]'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    code, text = plan("--runs-dir", str(tmp_path))
    assert code == 0, text
    text = " ".join(text.split())
    assert "GiB of the GPU, whose size is not known, without a KV cache" in text
    assert "engine: compiled, with graphs (auto, on a GPU)" in text
    _, text = plan("--runs-dir", str(tmp_path), "--set", "rollout.enforce_eager=true")
    assert "engine: eager (as configured)" in " ".join(text.split())


def test_a_plan_names_every_problem_and_exits_with_1(tmp_path: Path) -> None:
    bad = ["--set", "actor.global_batch_size=15", "--set", "data.prompt_template=nowhere.jinja"]
    code, text = plan("--runs-dir", str(tmp_path), *bad)
    assert code == 1
    assert "nowhere.jinja" in text and "global_batch_size" in text


def test_planning_imports_nothing_heavy(tmp_path: Path) -> None:
    script = f"""
import sys
from flows.cli import app
try:
    app(["plan", "configs/quickstart.yaml", "--runs-dir", {str(tmp_path)!r}])
except SystemExit as end:
    assert not end.code
loaded = [name for name in {HEAVY!r} if name in sys.modules]
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
