"""The critic: a value before each response token, of what has been written before it and of nothing else."""

from collections.abc import Sequence

import pytest
import torch
from torch.testing import assert_close

from rl_core.models.packing import TreeInput, pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.value import ValueModel, load_value_model
from tests.rl_core.models.builders import FAMILIES, VISION_FAMILIES, Bench, model_config, relative_difference, roughen


@pytest.fixture
def bench(request, model_folder) -> Bench:
    return Bench.load(model_folder(request.param))


@pytest.fixture
def critic(bench, model_folder, request) -> ValueModel:
    folder = model_folder(request.node.callspec.params["bench"])
    critic = load_value_model(folder, model_config(folder))
    roughen(critic)
    return critic


def trees_of(bench: Bench) -> list[TreeInput]:
    images = ["square-1"] if bench.policy.config.model_type in VISION_FAMILIES else []
    return [bench.tree([3] * (len(images) + 1), images, [4, 1, 3], seed=1), bench.tree([5], [], [2], seed=2)]


def values_of(critic: ValueModel, trees: Sequence[TreeInput], pixels: PixelCache) -> torch.Tensor:
    values: torch.Tensor = critic(pack_trees(trees, pixels=pixels, model_config=critic.config, device=critic.device))
    return values


@pytest.mark.parametrize("bench", FAMILIES, indirect=True)
def test_a_packed_tree_has_the_values_of_its_rollouts_by_themselves(bench, critic):
    trees = trees_of(bench)
    packed = values_of(critic, trees, bench.pixels)
    alone = [
        values_of(critic, [TreeInput(prompt=tree.prompt, responses=[response])], bench.pixels)
        for tree in trees
        for response in tree.responses
    ]
    assert packed.dtype == torch.float32
    assert packed.detach().std() > 0.1
    assert relative_difference(packed.detach(), torch.cat(alone).detach()) < 1e-5


@pytest.mark.parametrize("bench", ["qwen2_5_vl"], indirect=True)
def test_a_value_knows_nothing_of_its_own_token_and_those_after_it(bench, critic):
    (tree, _) = trees_of(bench)
    first, *others = tree.responses
    changed = first.copy()
    changed[2] += 1
    before = values_of(critic, [tree], bench.pixels)
    after = values_of(critic, [TreeInput(prompt=tree.prompt, responses=[changed, *others])], bench.pixels)
    assert_close(before[:3], after[:3])
    assert abs(float(before[3] - after[3])) > 1e-4


@pytest.mark.parametrize("bench", ["qwen2_5_vl"], indirect=True)
def test_a_new_critic_predicts_zero_and_trains_all_of_its_weights(bench, model_folder):
    folder = model_folder("qwen2_5_vl")
    critic = load_value_model(folder, model_config(folder))
    trees = trees_of(bench)
    assert not values_of(critic, trees, bench.pixels).any()
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
    for _ in range(2):  # the first step moves the head, and the gradient then passes it
        optimizer.zero_grad()
        (values_of(critic, trees, bench.pixels) - 1.0).square().mean().backward()
        optimizer.step()
    unmoved = [name for name, p in critic.named_parameters() if p.grad is None or not p.grad.any()]
    assert unmoved == []
    assert "lm_head.weight" not in dict(critic.body.named_parameters())
