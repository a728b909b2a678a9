"""Whatever workers train a drawn configuration, its first step comes to the numbers of a single worker."""

import os
from collections.abc import Mapping
from typing import get_args

import pytest
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from rl_core.distributed.place import Layout
from tests.drawn.profiles import FEW, Tree
from tests.drawn.running import Outcome, Workshop
from tests.drawn.strategies import fitting_trees, one_of
from tests.drawn.test_drawn_configs import is_a_sentence, one_drawn

SEED_VARIABLE = "DRAWN_TOPOLOGIES_SEED"

COUNT = 10

FLOAT32 = [tree for tree in FEW if tree["model"]["dtype"] == "float32"]
"""In bfloat16 a sum over other parts is rounded to another number, after a cold start other responses among them."""


@st.composite
def topologies(draw: DrawFn) -> Tree:
    """The section `cluster`: up to four workers of this machine."""
    together = draw(one_of(1, 1, 2))
    devices = together * draw(one_of(1, 2, 3) if together == 1 else one_of(1, 2))
    return {
        "devices": devices,
        "sequence_parallel_size": together,
        "tensor_parallel_size": draw(one_of(1, 2)) if devices % 2 == 0 else 1,
        "sharding": draw(one_of(*get_args(Layout))),
        "dealing": draw(one_of("static", "dynamic")),
        "device": "cpu",  # not `auto`, so that a single worker is in a cluster too
    }


@st.composite
def trees_with_topologies(draw: DrawFn) -> Tree:
    return {**draw(fitting_trees(FLOAT32)), "cluster": draw(topologies())}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_first_step_does_not_depend_on_the_workers(workshop: Workshop, subtests: pytest.Subtests) -> None:
    """Others each time; the seed that is printed, given in DRAWN_TOPOLOGIES_SEED, draws the same again."""
    seed = int(os.environ.get(SEED_VARIABLE) or int.from_bytes(os.urandom(4)))
    print(f"{SEED_VARIABLE}={seed}")  # noqa: T201
    ran = 0
    for number in range(COUNT):
        tree = one_drawn(trees_with_topologies(), seed=seed + number)
        with subtests.test(number=number, cluster=tree["cluster"]):
            alone = workshop.outcome({key: value for key, value in tree.items() if key != "cluster"})
            together = workshop.outcome(tree)
            if together.ending == "planned against" and alone.ending == "ran":
                assert is_a_sentence(together) and "cluster" in together.message, together
                continue
            assert together.ending == alone.ending, (together, alone)
            ran += together.ending == "ran"
            assert differing(alone, together) == {}
    assert ran >= COUNT // 3


def differing(alone: Outcome, together: Outcome) -> Mapping[str, tuple[float, float]]:
    """The metrics that differ by more than rounding."""
    one, other = alone.metrics or {}, together.metrics or {}
    assert one.keys() == other.keys()
    return {
        name: (one[name], other[name]) for name in one if other[name] != pytest.approx(one[name], rel=1e-4, abs=1e-5)
    }
