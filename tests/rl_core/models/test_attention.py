"""Which attention is chosen, and what the tree attention refuses."""

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from rl_core.models.attention import attention_backend, use_tree_attention
from rl_core.models.loading import load_model
from rl_core.planning.gpu import attention_choice
from tests.rl_core.models.builders import Bench, model_config, varlen_attention
from tests.rl_core.models.text_families import packed_log_probs, policy_of, tree, write_text_model


@pytest.fixture
def gpu_machine(monkeypatch) -> None:
    """A machine that answers as one with a GPU would."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.fixture
def install_flash_attn(tmp_path, monkeypatch) -> Callable[[str], None]:
    """Installs a package flash_attn with this content."""

    def install(content: str) -> None:
        (tmp_path / "flash_attn.py").write_text(content)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return install


def test_without_a_gpu_it_is_sdpa_and_flash_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert attention_backend(model_config(tmp_path)) == "sdpa"
    with pytest.raises(ValueError, match=r"no NVIDIA GPU.*'auto' or 'sdpa'"):
        attention_backend(model_config(tmp_path, attention="flash"))


@pytest.mark.usefixtures("gpu_machine")
def test_with_a_gpu_and_flash_attn_auto_takes_flash_in_bfloat16_only(tmp_path, install_flash_attn):
    install_flash_attn("def flash_attn_varlen_func(): ...")
    assert attention_backend(model_config(tmp_path, dtype="bfloat16")) == "flash"
    assert attention_backend(model_config(tmp_path, dtype="bfloat16", attention="sdpa")) == "sdpa"
    assert attention_backend(model_config(tmp_path, dtype="float32")) == "sdpa"
    with pytest.raises(ValueError, match="no float32 kernels"):
        attention_backend(model_config(tmp_path, dtype="float32", attention="flash"))


@pytest.mark.usefixtures("gpu_machine")
def test_flash_attn_of_another_pytorch_is_not_taken_and_its_error_is_shown(tmp_path, install_flash_attn):
    install_flash_attn("raise ImportError('flash_attn_2_cuda.so: undefined symbol: _ZN3c10')")
    half = model_config(tmp_path, dtype="bfloat16")
    error = "not for this Python and PyTorch: ImportError: flash_attn_2_cuda.so: undefined symbol: _ZN3c10"
    assert attention_choice(half, has_gpu=True) == ("varlen", f"auto: flash-attn is installed, but {error}")
    assert attention_choice(half, has_gpu=False).backend == "sdpa"
    with pytest.raises(ValueError, match="undefined symbol"):
        attention_backend(model_config(tmp_path, dtype="bfloat16", attention="flash"))


@pytest.mark.usefixtures("gpu_machine")
def test_flash_that_is_not_installed_is_named(tmp_path):
    with pytest.raises(ValueError, match="flash-attn is not installed"):
        attention_backend(model_config(tmp_path, dtype="bfloat16", attention="flash"))


@pytest.mark.usefixtures("gpu_machine")
def test_with_a_gpu_alone_auto_takes_the_kernel_of_pytorch_in_bfloat16_only(tmp_path):
    assert attention_backend(model_config(tmp_path, dtype="bfloat16")) == "varlen"
    assert attention_backend(model_config(tmp_path, dtype="float32")) == "sdpa"
    with pytest.raises(ValueError, match="no float32 kernels"):
        attention_backend(model_config(tmp_path, dtype="float32", attention="varlen"))


def test_the_choice_says_why(tmp_path):
    half, full = model_config(tmp_path, dtype="bfloat16"), model_config(tmp_path, dtype="float32")
    assert attention_choice(half, has_gpu=True) == ("varlen", "auto: flash-attn is not installed (extra `flash`)")
    assert attention_choice(half, has_gpu=False) == ("sdpa", "auto: there is no NVIDIA GPU")
    assert attention_choice(full, has_gpu=True).why.startswith("auto: there are no float32 kernels")
    named = model_config(tmp_path, dtype="bfloat16", attention="sdpa")
    assert attention_choice(named, has_gpu=True) == ("sdpa", "as configured")


def test_the_flash_form_runs_in_the_model_and_agrees_with_sdpa(model_folder, monkeypatch):
    """The kernel itself needs a GPU; here a function of its documented meaning stands in its place."""
    monkeypatch.setitem(sys.modules, "flash_attn", SimpleNamespace(flash_attn_varlen_func=varlen_attention))
    bench = Bench.load(model_folder("llama"))
    trees = [bench.tree([3], [], [4, 1, 2], seed=1), bench.tree([5], [], [3], seed=2)]
    packed = bench.pack(trees)
    expected = bench.policy(packed, temperature=1.0).log_probs
    use_tree_attention(bench.policy.model, "flash")
    torch.testing.assert_close(bench.policy(packed, temperature=1.0).log_probs, expected, rtol=1e-5, atol=1e-5)


def test_a_forward_without_trees_is_refused(model_folder):
    model = load_model(model_folder("llama"), model_config(model_folder("llama")))
    with pytest.raises(ValueError, match="tree_layout"):
        model(input_ids=torch.arange(4)[None])


def test_a_window_that_only_the_layer_names_is_obeyed(model_folder):
    bench = Bench.load(model_folder("qwen2_5"))
    packed = bench.pack([bench.tree([3], [], [2])])
    before = bench.policy(packed, temperature=1.0).log_probs
    for window, differs in ((4, False), (2, True)):
        bench.policy.model.base_model.layers[0].self_attn.sliding_window = window
        assert torch.equal(bench.policy(packed, temperature=1.0).log_probs, before) != differs


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("gemma2", r"Gemma2Attention of layer 0 asks for .*\(softcap\).*model\.attention=sdpa"),
        ("gpt_oss", r"GptOssAttention of layer 0 asks for .*\(s_aux\)"),
        ("llama4_text", r"Llama4TextAttention of layer 0 asks for .*\(attention_chunk_size\)"),
    ],
)
def test_features_that_the_kernels_of_a_gpu_lack_are_refused_by_layer_and_argument(
    family, words, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "flash_attn", SimpleNamespace(flash_attn_varlen_func=varlen_attention))
    policy = policy_of(write_text_model(tmp_path, family))
    use_tree_attention(policy.model, "flash")
    with pytest.raises(ValueError, match=words):
        packed_log_probs(policy, [tree(20, [4])])


@pytest.mark.parametrize("family", ["mistral", "gemma3_text", "cohere2"])
def test_the_flash_form_obeys_windows(family, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "flash_attn", SimpleNamespace(flash_attn_varlen_func=varlen_attention))
    policy, trees = policy_of(write_text_model(tmp_path, family)), [tree(20, [4, 1, 9]), tree(3, [12], seed=1)]
    expected = packed_log_probs(policy, trees)
    use_tree_attention(policy.model, "flash")
    torch.testing.assert_close(packed_log_probs(policy, trees), expected, rtol=1e-5, atol=1e-5)
