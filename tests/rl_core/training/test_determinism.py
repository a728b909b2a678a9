"""The settings of torch that decide about the last bits."""

from collections.abc import Iterator

import pytest
import torch

from rl_core.training.determinism import deterministic_on_cpu, use_full_float32


@pytest.fixture
def precision_of_torch() -> Iterator[None]:
    """Restores the settings of the process."""
    matmul, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = convolutions


@pytest.mark.usefixtures("precision_of_torch")
def test_no_float32_product_on_a_gpu_is_made_in_tf32():
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    assert torch.backends.cuda.matmul.allow_tf32
    use_full_float32()
    assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cuda.matmul.fp32_precision == "ieee"
    assert not torch.backends.cudnn.allow_tf32


def test_deterministic_algorithms_are_on_inside_the_block_only():
    assert not torch.are_deterministic_algorithms_enabled()
    with deterministic_on_cpu(torch.device("cpu")):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
    with deterministic_on_cpu(torch.device("cuda")):
        assert not torch.are_deterministic_algorithms_enabled()
