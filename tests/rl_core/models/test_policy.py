"""The policy as it comes from a folder."""

import pytest
import torch

from tests.rl_core.models.builders import FAMILIES, VISION_FAMILIES, Bench


def saved_bytes(bench: Bench, images: list[str]) -> int:
    """What a forward keeps for its backward pass, weights included."""
    sizes: list[int] = []

    def count(tensor: torch.Tensor) -> torch.Tensor:
        sizes.append(tensor.numel() * tensor.element_size())
        return tensor

    tree = bench.tree([40] * (len(images) + 1), images, [12, 12, 12])
    packed = bench.pack([tree])
    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        bench.policy(packed, temperature=1.0)
    return sum(sizes)


@pytest.mark.parametrize("family", FAMILIES)
def test_activation_checkpointing_keeps_less_in_the_policy_as_the_trainer_loads_it(family, model_folder):
    images = ["square-1"] if family in VISION_FAMILIES else []
    stored = saved_bytes(Bench.load(model_folder(family)), images)
    recomputed = saved_bytes(Bench.load(model_folder(family), gradient_checkpointing=True), images)
    assert recomputed < 0.6 * stored
