import pytest

from rl_core.algorithms.kl import adapted_coef


@pytest.mark.parametrize(("kl", "factor"), [(0.1, 1.0), (0.11, 1.01), (0.09, 0.99), (9.0, 1.02), (-9.0, 0.98)])
def test_an_adaptive_weight_follows_the_kl_by_at_most_a_fifth_a_horizon(kl, factor):
    assert adapted_coef(0.5, kl=kl, samples=64, target=0.1, horizon=640.0) == pytest.approx(0.5 * factor)
