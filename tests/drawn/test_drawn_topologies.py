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
from tests.drawn.strategies import can_wait, fitting_trees, one_of
from tests.drawn.test_drawn_configs import is_a_sentence, one_drawn

SEED_VARIABLE = "DRAWN_TOPOLOGIES_SEED"

COUNT = 10

FLOAT32 = [tree for tree in FEW if tree["model"]["dtype"] == "float32"]
"""In bfloat16 a sum over other parts is rounded to another number, after a cold start other responses among them."""


@st.composite
def topologies(draw: DrawFn) -> Tree:
    """The section `cluster`: up to four workers of this machine."""
    together = draw(one_of(1, 1, 2))
    return {
        **draw(one_of(colocated(together), split(together)).flatmap(lambda places: places)),
        "sequence_parallel_size": together,
        "sharding": draw(one_of(*get_args(Layout))),
        "dealing": draw(one_of("static", "dynamic")),
        "device": "cpu",  # not `auto`, so that a single worker is in a cluster too
    }


@st.composite
def colocated(draw: DrawFn, together: int) -> Tree:
    """Workers that generate and train in turn; `together` is how many compute a sequence."""
    devices = together * draw(one_of(1, 2, 3) if together == 1 else one_of(1, 2))
    return {"devices": devices, "tensor_parallel_size": draw(one_of(1, 2)) if devices % 2 == 0 else 1}


@st.composite
def split(draw: DrawFn, together: int) -> Tree:
    """One or two workers that train, and one or two that generate."""
    trainers, generators = draw(one_of(together, 2)), draw(one_of(1, 1, 2))
    return {"placement": "split", "devices": trainers + generators, "generating_devices": generators}


@st.composite
def trees_with_topologies(draw: DrawFn) -> Tree:
    """Where the workers are split, mostly one step off, if the algorithm allows it."""
    tree, cluster = draw(fitting_trees(FLOAT32)), draw(topologies())
    avoid_what_rounding_decides(tree["algorithm"])
    if is_split(cluster) and can_wait(tree["algorithm"]):
        tree["rollout"]["staleness"] = draw(one_of(0, 1, 1))
    return {**tree, "cluster": cluster}


def avoid_what_rounding_decides(algorithm: Tree) -> None:
    """At first policy, reference and generator have equal weights, and every ratio between them is one but for
    rounding. The absolute log-ratio has a kink there. As a part of the reward, any estimate of the KL that is linear in
    the log-ratio is divided by its own spread where the other rewards of a group are equal. And a bound at one masks
    the tokens that were rounded down."""
    kl, correction = algorithm["kl"], algorithm["correction"]
    if kl is not None and (kl["penalty"] == "abs" or (kl["penalty"] == "kl" and not kl["use_kl_loss"])):
        kl["penalty"] = "low_var_kl"
    if correction is not None:
        bounds = {"clip_min": 0.5, "clip_max": 2.0}
        correction |= {name: bound for name, bound in bounds.items() if correction.get(name) == 1.0}


def is_split(cluster: Tree) -> bool:
    return cluster.get("placement") == "split"


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
            compares_other_tokens = is_split(tree["cluster"]) and tree["rollout"]["staleness"] == 1
            assert differing(alone, together, but_the_comparison=compares_other_tokens) == {}
    assert ran >= COUNT // 3


def differing(alone: Outcome, together: Outcome, *, but_the_comparison: bool) -> Mapping[str, tuple[float, float]]:
    """The metrics that differ by more than rounding; without those that compare generator and trainer where these
    are of other tokens."""
    one, other = (
        {
            name: value
            for name, value in (outcome.metrics or {}).items()
            if not (but_the_comparison and name.startswith("agreement/"))
        }
        for outcome in (alone, together)
    )
    assert one.keys() == other.keys()
    return {
        name: (one[name], other[name]) for name in one if other[name] != pytest.approx(one[name], rel=1e-4, abs=1e-5)
    }
