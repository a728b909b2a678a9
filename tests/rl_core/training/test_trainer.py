"""Which pass a trainer makes first through its models changes no number. With several ranks this is not a matter of
course: FSDP2 decides in a model's first pass which parameters have a gradient, and in which number format."""

from itertools import permutations, product

import numpy as np
import pytest
import torch

from tests.rl_core.distributed.spmd import run_ranks
from tests.rl_core.models.builders import write_small_model
from tests.rl_core.training.first_passes import Kind, in_every_order
from tests.servers import free_port

PASSES = ("reference", "old", "values", "update")
ROTATED = [PASSES[first:] + PASSES[:first] for first in range(len(PASSES))]


@pytest.mark.parametrize(
    ("layouts", "orders"),
    [
        pytest.param(("full",), ROTATED, id="each first"),
        pytest.param(("full", "hybrid", "none"), [*permutations(PASSES)], id="every order", marks=pytest.mark.slow),
    ],
)
def test_the_order_of_the_first_passes_changes_no_number(layouts, orders, tmp_path):
    folder = write_small_model(tmp_path / "model", "llama")
    meetings = {layout: f"tcp://127.0.0.1:{free_port()}" for layout in layouts}
    kinds = [
        Kind(layout=layout, dtype=dtype, lora=lora)
        for layout, dtype, lora in product(layouts, ("float32", "bfloat16"), (False, True))
    ]
    ranks = run_ranks(in_every_order, tmp_path, meetings, folder, kinds, orders, size=2)
    for kind, rank in product(kinds, ranks):
        runs = rank[kind]
        first = runs[PASSES]
        assert all(torch.equal(run.weights, first.weights) for run in runs.values()), kind
        for name in PASSES:
            before, after = [], []
            for order, run in runs.items():
                is_after = name in ("old", "values") and order.index("update") < order.index(name)
                (after if is_after else before).append(run.found[name])
            assert all(np.array_equal(numbers, before[0]) for numbers in before), (kind, name)
            assert all(np.array_equal(numbers, after[0]) for numbers in after), (kind, name)
            assert not after or not np.array_equal(before[0], after[0]), (kind, name)  # the control: weights change
