"""A merged folder counts only if transformers and vLLM give the log-probs that the trainer stored."""

import ast
import os
import re
import shutil
import signal
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file, save_file

from rl_core.config.tolerances import Tolerance
from rl_core.export import merged_check
from rl_core.export.verification import ENGINES, MergeNotVerified, engines_here, verify_merged
from rl_core.families.registry import FAMILIES
from tests.processes import printed_by
from tests.rl_core.merged_models import Merged

TOLERANCE = Tolerance(largest=1e-4, mean=1e-5)
ROUNDED = Tolerance(largest=0.3, mean=0.03)


LAYER = re.compile(r"layers\.1\.mlp\.(experts\.(\d+\.)?)?down_proj(\.weight)?$")


def perturbed(merged: Merged, folder: Path, *, factor: float = 1.02) -> Path:
    """A copy of the merged folder with half of one weight of one layer, or that of each of its experts, off by 2 %, or
    by what the factor says. A norm after it would undo a factor of all of it."""
    shutil.copytree(merged.folder, folder)
    weights = load_file(folder / "model.safetensors")
    names = [name for name in weights if LAYER.search(name) and "visual" not in name]
    assert len(names) in (1, 8)
    for name in names:
        weights[name][::2] *= factor
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_a_process_that_verifies_keeps_its_own_environment():
    """A run imports this, and the cache of its generator would be as large as that of the check."""
    code = "import os; before = dict(os.environ); import rl_core.export.verification; print(os.environ == before)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM", "HF_HUB"))}
    assert printed_by(code, variables=environment) == "True\n"


def test_a_layer_that_is_off_fails_and_the_message_says_where(merged, tmp_path):
    family = merged("qwen2_5_vl")
    folder = perturbed(family, tmp_path / "perturbed")
    with pytest.raises(MergeNotVerified) as error:
        verify_merged(folder, family.probe_folder, TOLERANCE, engines=["transformers"])
    message = str(error.value)
    assert "transformers: 22 response tokens, largest difference" in message
    assert "item prompt-" in message
    assert "response token" in message


@pytest.mark.parametrize("share", [0.5, 0.0])
@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl", "llama"])
def test_a_model_that_is_larger_than_the_memory_gives_the_same_numbers(merged, family, share, monkeypatch):
    """What has no room is read from the folder, layer by layer."""
    one = merged(family)
    items, dtype = merged_check.read_items(one.probe_folder)
    expected = merged_check.transformers_log_probs(one.folder, items, dtype)
    size = (one.folder / "model.safetensors").stat().st_size
    monkeypatch.setattr(merged_check, "room", lambda: {"cpu": int(share * size)})
    assert merged_check.transformers_log_probs(one.folder, items, dtype) == expected


@pytest.mark.parametrize(
    ("weights", "gpus", "count", "offloaded", "utilisation"),
    [
        (7, 8, 1, 0, 0.5),
        (40, 8, 1, 0, 0.65),
        (145, 8, 4, 0, 36.25 / 80 + 0.15),
        (145, 2, 2, 12.5, 0.9),
        (145, 1, 1, 85, 0.9),
    ],
)
def test_vllm_takes_as_many_gpus_as_the_weights_need(weights, gpus, count, offloaded, utilisation):
    assert merged_check.spread(weights << 30, 80 << 30, gpus) == {
        "tensor_parallel_size": count,
        "cpu_offload_gb": pytest.approx(offloaded),
        "gpu_memory_utilization": pytest.approx(max(0.5, utilisation)),
    }


def test_a_check_that_ends_without_a_result_fails_with_its_own_words(merged, tmp_path):
    with pytest.raises(
        MergeNotVerified, match=r"vllm cannot load or run (.|\n)*No such file or directory: .*probe\.json"
    ):
        verify_merged(merged("qwen2_5").folder, tmp_path, TOLERANCE, engines=["vllm"])


def test_an_error_that_ends_the_verification_ends_its_processes(merged):
    """As Ctrl-C does, which is raised wherever the verification waits."""
    one, children = merged("qwen2_5_vl"), psutil.Process().children
    before = {*children(recursive=True)}

    def interrupt(*_):
        assert len({*children()} - before) == 2
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 2.0)
    try:
        with pytest.raises(KeyboardInterrupt):
            verify_merged(one.folder, one.probe_folder, TOLERANCE)
    finally:
        signal.signal(signal.SIGALRM, handler)
    assert {*children(recursive=True)} <= before


def test_the_checking_process_imports_nothing_of_sightline():
    tree = ast.parse(Path(merged_check.__file__).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} & {"rl_core", "tasks", "flows", "sightline_tools"} == set()
    assert "transformers" in imported


def test_a_comparison_names_the_worst_places_first_and_takes_nan_for_a_difference():
    items = [
        {"name": "a/0", "response_ids": [7, 8], "log_probs": [-1.0, -2.0]},
        {"name": "b/1", "response_ids": [9], "log_probs": [-3.0]},
    ]
    equal = merged_check.compare(items, [[-1.0, -2.00005], [-3.0]], 1e-4, 1e-4)
    assert (equal["num_beyond"], equal["num_tokens"]) == (0, 3)
    assert equal["largest_difference"] == pytest.approx(5e-5)
    different = merged_check.compare(items, [[-1.0, -2.5], [float("nan")]], 1e-4, 1e-4)
    assert [(place["item"], place["position"], place["token"]) for place in different["beyond"]] == [
        ("b/1", 0, 9),
        ("a/0", 1, 8),
    ]
    assert "item a/0, response token 1 (id 8): stored -2.000000, found -2.500000" in merged_check.report(
        {"engine": "vllm"} | different
    )
    assert (equal["is_equal"], different["is_equal"]) == (True, False)


def test_vllm_is_not_asked_where_its_attention_is_another(tmp_path):
    for family, engines in (("gemma3", ("transformers",)), ("gemma3_text", ENGINES), ("qwen2_5_vl", ENGINES)):
        (tmp_path / "config.json").write_text(f'{{"model_type": "{FAMILIES[family].model_type}"}}')
        assert tuple(engines_here(tmp_path)) == engines


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_proven_and_a_perturbed_layer_refused_by_vllm(merged, tmp_path, family):
    it = merged(family)
    tolerance, usual, factor = (TOLERANCE, 2e-5, 1.02) if it.probe.dtype == "float32" else (ROUNDED, 0.2, -1.0)
    factor = -1.0 if "num_experts" in FAMILIES[family].tiny_text(32) else factor  # a token goes through few of them
    verified = verify_merged(it.folder, it.probe_folder, tolerance)
    assert max(verified.largest_difference.values()) < usual
    folder = perturbed(it, tmp_path / "perturbed", factor=factor)
    with pytest.raises(MergeNotVerified, match=f"vllm: .* beyond {tolerance.largest:g}"):
        verify_merged(folder, it.probe_folder, tolerance, engines=["vllm"])
    (folder / "model.safetensors").unlink()
    for engine in ("transformers", "vllm"):
        with pytest.raises(MergeNotVerified, match=f"{engine} cannot load or run "):
            verify_merged(folder, it.probe_folder, TOLERANCE, engines=[engine])
