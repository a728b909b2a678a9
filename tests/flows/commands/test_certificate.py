"""`sightline doctor --model`: a model that no family knows is trained once its certificate is made."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rl_core.families.registry import FAMILIES
from tests.rl_core.rollout.engines import build_folder, build_other


def sightline(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [str(Path(sys.executable).with_name("sightline")), *words]
    environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_plan_asks_for_the_certificate_and_takes_it(tmp_path: Path) -> None:
    model = build_other(tmp_path / "model", "starcoder2", sliding_window=6)
    planned = ("plan", "configs/word_problems/smollm2.yaml", f"model.source={{type: pretrained, path: {model}}}")
    asked = sightline(tmp_path, *planned)
    assert f"make it: sightline doctor --model {model}" in asked.stdout + asked.stderr
    output = tmp_path / "model.json"
    made = sightline(tmp_path, "doctor", "--model", str(model), "--devices", "2", "--output", str(output))
    assert made.returncode == 0, made.stdout + made.stderr
    verdicts = {finding["check"]: finding["verdict"] for finding in json.loads(output.read_text())["findings"]}
    assert {*verdicts.values()} == {"ok"} and len(verdicts) >= 17
    taken = sightline(tmp_path, *planned)
    assert "certificate" not in taken.stdout + taken.stderr


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_its_whole_certificate(family: str, tmp_path: Path) -> None:
    """With steps and a resume, the merged model, LoRA and two ranks, as far as it has them."""
    model, output = build_folder(tmp_path / "model", family), tmp_path / "model.json"
    made = sightline(tmp_path, "doctor", "--model", str(model), "--devices", "2", "--output", str(output))
    assert made.returncode == 0, made.stdout + made.stderr
    verdicts = [finding["verdict"] for finding in json.loads(output.read_text())["findings"]]
    assert "fails" not in verdicts
    assert verdicts.count("ok") >= 12


def test_a_folder_without_a_model_and_a_model_that_cannot_be_trained_are_refused_at_once(tmp_path: Path) -> None:
    nothing = sightline(tmp_path, "doctor", "--model", str(tmp_path / "nothing"))
    assert nothing.returncode != 0 and "there is no folder" in nothing.stderr
    folder = build_folder(tmp_path / "model", "llama")
    fields = json.loads((folder / "config.json").read_text()) | {"model_type": "mllama"}
    (folder / "config.json").write_text(json.dumps(fields))
    refused = sightline(tmp_path, "doctor", "--model", str(folder))
    assert refused.returncode != 0 and "vLLM serves Llama 3.2 Vision no more" in refused.stderr
