"""What the card tells a person to type works as it stands."""

import io
import shlex
from contextlib import redirect_stdout

import pytest
import yaml
from PIL import Image

from rl_core.export.model_card import AccuracyRow, CardFacts, model_card, usage_lines, write_model_card
from rl_core.export.verification import Verification

FACTS = CardFacts(
    run="quickstart-abc",
    base="tiny qwen2_5_vl, random",
    algorithm="advantage grpo, loss ppo",
    step=64,
    data="2048 counting scenes",
    data_fingerprint="0123abcd",
    reward="count",
    accuracy=[
        AccuracyRow(name="base, greedy", n=400, accuracy=0.25, ci95=(0.21, 0.295)),
        AccuracyRow(name="trained, greedy", n=400, accuracy=0.95, ci95=(0.924, 0.967)),
    ],
    verification=Verification(num_tokens=42, largest_difference={"transformers": 1e-7, "vllm": 2e-6}),
    versions={"torch": "2.13.0"},
    certificate="holds 10 checks on CPU in float32",
)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen2_5"])
def test_the_transformers_lines_run(merged, family, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (84, 84), "red").save("image.png")
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(usage_lines(merged(family).folder)["With transformers"])  # what the card says
    assert "generated_text" in printed.getvalue()


def test_the_card_shows_what_the_run_knows(merged, tmp_path):
    folder = merged("qwen2_5_vl").folder
    card = model_card(folder, FACTS)
    run = ("quickstart-abc, step 64", "tiny qwen2_5_vl, random", "advantage grpo")
    for fact in (*run, "0123abcd", "torch 2.13.0", "holds 10 checks on CPU", "vllm 2.0e-06"):
        assert fact in card
    assert "| trained, greedy | 400 | 0.950 | 0.924 - 0.967 |" in card
    assert f"vllm serve {shlex.quote(str(folder))}" in card
    header = yaml.safe_load(card.split("---")[1])
    assert header["pipeline_tag"] == "image-text-to-text"
    assert header["library_name"] == "transformers"
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    write_model_card(tmp_path, FACTS)
    assert (tmp_path / "README.md").read_text().startswith("---\n")


def test_a_model_on_the_hub_is_called_by_its_name(merged):
    usage = usage_lines(merged("qwen2_5").folder, hub_name="owner/counter")
    assert usage["With vLLM"] == "vllm serve owner/counter"
    assert "model='owner/counter'" in usage["With transformers"]
