"""Whatever a configuration says, it is refused with a sentence or runs a step."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from rl_core.digests import digest_of
from rl_core.randomness import keyed_seed
from tests.drawn.profiles import FEW, MANY, Tree
from tests.drawn.running import Outcome, Workshop
from tests.drawn.strategies import run_trees

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "drawn_configs.json"
SEED_VARIABLE = "DRAWN_CONFIGS_SEED"


def drawn(count: int, profiles: Sequence[Tree], *, seed: int = 0) -> list[Tree]:
    """What hypothesis draws, ordered so that those of one engine and reward follow each other. All are drawn before
    the first is run: nothing is shrunk, for each try would be a training step."""
    trees = [one_drawn(run_trees(profiles), seed=keyed_seed(seed, "drawn", number)) for number in range(count)]
    return sorted(trees, key=_what_is_shared)


def _what_is_shared(tree: Tree) -> list[str]:
    """Rows and engine first, then the reward's processes."""
    model = tree["model"]
    limits = [tree["rollout"].get(name) for name in ("max_response_length", "max_num_seqs")]
    parts = (model.get("source"), model["dtype"], tree["data"]["train"], limits)
    return [digest_of(part) for part in (*parts, tree["cold_start"], tree["reward"])]


def one_drawn(strategy: SearchStrategy[Tree], *, seed: int) -> Tree:
    """The second of two examples: the first is always the simplest, and later ones are mutations of those before."""
    trees: list[Tree] = []

    @hypothesis.seed(seed)
    @settings(max_examples=2, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(tree: Tree) -> None:
        trees.append(tree)

    collect()
    return trees[-1]


def share_that_ran(outcomes: Sequence[Outcome]) -> float:
    return sum(outcome.ending == "ran" for outcome in outcomes) / len(outcomes)


def handled(trees: Sequence[Tree], workshop: Workshop, subtests: pytest.Subtests) -> list[Outcome]:
    """The outcomes; one that is neither a sentence nor a step fails by itself, and the others go on."""
    outcomes = []
    for number, tree in enumerate(trees):
        with subtests.test(number=number, tree=json.dumps(tree)):
            outcome = workshop.outcome(tree)
            assert outcome.ending == "ran" or is_a_sentence(outcome), outcome
            outcomes.append(outcome)
    return outcomes


def is_a_sentence(outcome: Outcome) -> bool:
    """Whether a refusal names what is wrong, and says more than that."""
    return bool(outcome.reasons) and all(reason in outcome.message for reason in outcome.reasons)


@pytest.mark.timeout(600)
def test_eight_configurations(workshop: Workshop, subtests: pytest.Subtests) -> None:
    outcomes = handled(drawn(8, FEW), workshop, subtests)
    assert share_that_ran(outcomes) >= 0.4
    assert share_that_ran(outcomes) < 1.0, "the control: nothing that does not fit was drawn"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_five_hundred_configurations(workshop: Workshop, subtests: pytest.Subtests) -> None:
    """Another five hundred each time; the seed that is printed, given in DRAWN_CONFIGS_SEED, draws the same again."""
    seed = int(os.environ.get(SEED_VARIABLE) or int.from_bytes(os.urandom(4)))
    print(f"{SEED_VARIABLE}={seed}")  # noqa: T201
    trees = drawn(500, MANY, seed=seed)
    outcomes = handled(trees, workshop, subtests)
    write_results(outcomes, seed=seed, engines=workshop.engines_started)
    assert len(outcomes) == len(trees)
    assert share_that_ran(outcomes) >= 0.4


def write_results(outcomes: Sequence[Outcome], *, seed: int, engines: int) -> None:
    refused = [outcome for outcome in outcomes if outcome.ending != "ran"]
    by_ending = {
        ending: dict(
            Counter(key for outcome in refused if outcome.ending == ending for key in outcome.reasons).most_common()
        )
        for ending in sorted({outcome.ending for outcome in refused})
    }
    facts = {
        "drawn": len(outcomes),
        "seed": seed,
        "hypothesis": hypothesis.__version__,
        "ran": sum(outcome.ending == "ran" for outcome in outcomes),
        "engines_started": engines,
        "refused": {ending: sum(o.ending == ending for o in refused) for ending in by_ending},
        "refused_by_key": by_ending,
    }
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n")
