"""Passes without a gradient keep their token budget, and give what they give without one."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_core.models.packing import PackedTrees
from rl_core.models.value import ValueModel, load_value_model
from rl_core.training.log_prob_pass import compute_full_kl, compute_log_probs, compute_values
from rl_core.types import Float32Array, Group
from tests.rl_core.builders import drawn_groups, make_group
from tests.rl_core.models.builders import Bench, model_config, roughen, write_small_model

NO_LIMIT = 1_000_000
PASSES = ("log_probs", "full_kl", "values")
GROUPS = drawn_groups(make_group, prompt=12, response=9, samples=5, least=1, most=4)


class Passes:
    """A policy, a reference and a critic of random weights, and what every forward of theirs was given."""

    def __init__(self, folder: Path) -> None:
        self._bench, self._reference = Bench.load(folder), Bench.load(folder)
        roughen(self._reference.policy, seed=1)
        self._critic: ValueModel = load_value_model(folder, model_config(folder))
        roughen(self._critic)
        self.forwards: list[PackedTrees] = []
        for model in (self._bench.policy, self._critic):
            model.register_forward_pre_hook(lambda _, inputs: self.forwards.append(inputs[0]))

    def run(self, name: str, groups: list[Group], token_budget: int) -> list[list[Float32Array]]:
        """The pass `name`; `forwards` has its forwards alone."""
        self.forwards.clear()
        policy, pixels = self._bench.policy, self._bench.pixels
        if name == "values":
            return compute_values(self._critic, groups, pixels=pixels, token_budget=token_budget)
        if name == "log_probs":
            return compute_log_probs(policy, groups, pixels=pixels, temperature=0.8, token_budget=token_budget)
        return compute_full_kl(
            policy, self._reference.policy, groups, pixels=pixels, temperature=0.8, token_budget=token_budget
        )


@pytest.fixture(scope="module")
def passes(tmp_path_factory) -> Passes:
    return Passes(write_small_model(tmp_path_factory.mktemp("llama"), "llama"))


def size_of(packed: PackedTrees) -> tuple[int, int]:
    """Rollouts and tree tokens of a forward: these responses begin with token 0, and their last tokens are no input."""
    rollouts = int((packed.targets == 0).sum())
    return rollouts, packed.input_ids.numel() + rollouts


@pytest.mark.parametrize("name", PASSES)
@given(groups=GROUPS, budget=st.integers(1, 60))
def test_every_forward_keeps_the_budget_or_is_one_rollout(passes, name, groups, budget):
    passes.run(name, groups, budget)
    for rollouts, tokens in map(size_of, passes.forwards):
        assert tokens <= budget or rollouts == 1


@pytest.mark.parametrize("name", PASSES)
@given(groups=GROUPS, budget=st.integers(1, 60))
def test_the_values_do_not_depend_on_the_budget(passes, name, groups, budget):
    expected = passes.run(name, groups, NO_LIMIT)
    assert len(passes.forwards) == 1
    found = passes.run(name, groups, budget)
    for group, values, wanted in zip(groups, found, expected, strict=True):
        assert [len(v) for v in values] == [len(rollout.response_ids) for rollout in group.rollouts]
        for value, want in zip(values, wanted, strict=True):
            torch.testing.assert_close(torch.from_numpy(value), torch.from_numpy(want), rtol=1e-4, atol=2e-5)
