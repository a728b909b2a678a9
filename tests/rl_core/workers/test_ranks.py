"""Workers that train one model together, as real processes over gloo, each with its own vLLM: they generate, learn,
save, resume, export and close, and come to the numbers of a worker that is alone."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch

from rl_core.loop.step_metrics import update_metrics
from rl_core.models.loading import load_model
from rl_core.training.batches import OptimizerStepReport, UpdateResult
from tests.rl_core.distributed.spmd import run_ranks
from tests.rl_core.models.builders import model_config, relative_difference
from tests.rl_core.small_run import prepare, small_config
from tests.rl_core.workers.rank_life import Life, carry, live
from tests.rl_core.workers.rank_troubles import Troubles, troubles
from tests.servers import free_port

pytestmark = pytest.mark.timeout(900)  # each launch imports torch in several processes

KL = ("algorithm.kl={coef: 0.1}",)

CARRIED = {
    "mixed": ("model.dtype=bfloat16",),
    "adapters": ("model.lora={rank: 2}", "model.dtype=bfloat16"),
    "critic": ("critic={}", "algorithm.advantage.type=gae", "model.freeze_vision_tower=true"),
}
"""What changes its number of workers."""

MORE_CARRIED = CARRIED | {
    "float32": (),
    "mixed, all weights everywhere": ("model.dtype=bfloat16", "cluster.sharding=none"),
    "pure": ("model.dtype=bfloat16", "actor.optim.strategy=adamw_bf16"),
    "offloaded": ("critic={}", "algorithm.advantage.type=gae", "trainer.offload=all"),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    return prepare(small_config(), tmp_path_factory.mktemp("ranks") / "run").root


@pytest.fixture(scope="module")
def alone(root) -> Life:
    out = root / "alone"
    out.mkdir()
    return run_ranks(live, out, root, out, KL, size=1)[0]


@pytest.fixture(scope="module", params=["full", pytest.param("none", marks=pytest.mark.slow)])
def two(root, request) -> list[Life]:
    out = root / request.param
    out.mkdir()
    return run_ranks(live, out, root, out, (*KL, f"cluster.sharding={request.param}"), size=2)


def test_a_response_does_not_depend_on_the_rank_that_samples_it(alone, two):
    together = {key: value for life in two for key, value in life.responses[0].items()}
    assert together == alone.responses[0]


def test_all_ranks_see_the_same_norm_and_the_same_agreement(two):
    for first, second in zip(two[0].updates, two[1].updates, strict=True):
        assert [report.outcome for report in first.policy] == [report.outcome for report in second.policy]
        assert first.log_prob_gap == second.log_prob_gap
        assert first.nonfinite_streak == second.nonfinite_streak == 0


def test_an_update_of_two_ranks_is_that_of_one(alone, two):
    expected, found = alone.updates[0], merged([life.updates[0] for life in two])
    assert found.log_prob_gap is not None and expected.log_prob_gap is not None
    assert found.log_prob_gap.count == expected.log_prob_gap.count
    assert found.log_prob_gap.largest < 2e-5
    # The second optimizer step comes after an AdamW step, which amplifies differences.
    assert update_metrics(found) == pytest.approx(update_metrics(expected), rel=1e-3, abs=1e-5)
    assert found.policy[0].outcome.grad_norm == pytest.approx(expected.policy[0].outcome.grad_norm, rel=1e-5)


def test_resumed_ranks_go_on_equal_to_the_bit(two):
    for life in two:
        assert life.updates[1] == life.updates[2]
        assert all(torch.equal(weight, life.resumed[name]) for name, weight in life.weights.items())


def test_every_rank_writes_its_own_files(two):
    written = [set(life.records) for life in two]
    assert all(written) and not written[0] & written[1]


def test_the_export_has_the_weights_of_all_ranks(two):
    folder = two[0].exported
    exported = dict(load_model(folder, model_config(folder)).named_parameters())
    assert exported.keys() == two[0].resumed.keys()
    assert all(torch.equal(weight, two[0].resumed[name]) for name, weight in exported.items())


def test_the_weights_of_two_ranks_are_near_those_of_one(alone, two):
    first, other = (torch.cat([w.flatten() for w in life.weights.values()]) for life in (alone, two[0]))
    assert relative_difference(other, first) < 1e-3


def test_nothing_is_left_of_the_process_groups(two):
    assert not any(life.has_process_groups for life in two)


@pytest.mark.parametrize(
    ("sizes", "carried_over"),
    [
        pytest.param((2, 1), CARRIED, id="2 to 1"),
        pytest.param((2, 1, 4, 2), MORE_CARRIED, id="and to 4 and 2", marks=pytest.mark.slow),
    ],
)
def test_a_state_goes_from_any_number_of_ranks_to_any_other_equal_to_the_bit(sizes, carried_over, root, tmp_path):
    """The update after it is the same up to rounding. All ranks begin with the same weights, which only the first one
    has read."""
    expected = {}
    metrics = {}
    for size, source in zip(sizes, [None, *map(str, sizes[:-1])], strict=True):
        meetings = {name: f"tcp://127.0.0.1:{free_port()}" for name in carried_over}
        found = run_ranks(carry, tmp_path, meetings, root, carried_over, source, size=size)
        expected = expected or found[0]
        for name, carried in expected.items():
            assert any("exp_avg_sq" in key for key in carried.state)
            assert [rank[name].files_read > 0 for rank in found] == [True] + [False] * (size - 1), name
            for rank in found:
                assert differing(carried.loaded, rank[name].loaded) == [], name
                assert differing(carried.state, rank[name].state) == [], name
            own = update_metrics(merged([rank[name].next_update for rank in found]))
            rounding = 3e-2 if "model.dtype=bfloat16" in carried_over[name] else 1e-3
            assert own == pytest.approx(metrics.setdefault(name, own), rel=rounding, abs=rounding / 10), name


@pytest.fixture(scope="module")
def troubled(root, tmp_path_factory) -> dict[int, list[Troubles]]:
    """Number of ranks -> what each of them saw."""
    found = {}
    for size in (1, 2):
        folder = tmp_path_factory.mktemp("troubles")
        meeting = f"tcp://127.0.0.1:{free_port()}"
        found[size] = run_ranks(troubles, folder, meeting, root, folder, size=size)
    return found


def test_an_error_of_one_rank_comes_out_on_all(troubled):
    first, second = troubled[2]
    assert first.errors == second.errors
    assert {name: error.partition(":")[0] for name, error in first.errors.items()} == {
        "generator": "AgreementError",
        "probe": "ProbeMismatch",
        "tensors": "MismatchedState",
        "checkpoint": "FileNotFoundError",
        "model": "OSError",
        "weights": "OSError",
        "placing": "OutOfMemoryError",
    }
    assert "sample 0, token 0" in first.errors["generator"]


def test_a_cold_start_step_of_two_ranks_is_that_of_one(troubled):
    """With five examples, and with a single one, of which the second rank has none."""
    for found in troubled[2]:
        assert found.imitated == troubled[2][0].imitated
        for metrics, expected in zip(found.imitated, troubled[1][0].imitated, strict=True):
            assert metrics == pytest.approx(expected, rel=1e-4)


def test_the_reference_of_adapters_is_the_policy_without_them_on_all_ranks(troubled):
    expected = troubled[1][0].reference
    found = {key: values for each in troubled[2] for key, values in each.reference.items()}
    assert found.keys() == expected.keys()
    assert any(kl.max() > 1e-4 for _, kl in expected.values())
    for key, (log_probs, kl) in expected.items():
        np.testing.assert_allclose(found[key][0], log_probs, atol=1e-5)
        np.testing.assert_allclose(found[key][1], kl, atol=1e-4)


def differing(expected: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor]) -> list[str]:
    """The names of which only one has a tensor, or the two are not equal to the bit."""
    both = expected.keys() & found.keys()
    return [*(expected.keys() ^ found.keys()), *(key for key in both if not torch.equal(expected[key], found[key]))]


def merged(results: list[UpdateResult]) -> UpdateResult:
    """As the driver puts the results of the ranks together."""
    reports = [
        OptimizerStepReport(tokens=[part for own in same for part in own.tokens], outcome=same[0].outcome)
        for same in zip(*(result.policy for result in results), strict=True)
    ]
    first = results[0]
    return UpdateResult(
        policy=reports, critic=(), log_prob_gap=first.log_prob_gap, nonfinite_streak=first.nonfinite_streak, seconds={}
    )
