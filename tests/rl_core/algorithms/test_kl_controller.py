import pytest

from rl_core.algorithms.kl_controller import AdaptiveKLController, FixedKLController


def test_a_fixed_weight_stays() -> None:
    assert FixedKLController(coef=0.1).after(kl=9.0, samples=64).coef == 0.1


@pytest.mark.parametrize(("kl", "factor"), [(0.1, 1.0), (0.11, 1.01), (0.09, 0.99), (9.0, 1.02), (-9.0, 0.98)])
def test_an_adaptive_weight_follows_the_kl_by_at_most_a_fifth_a_horizon(kl: float, factor: float) -> None:
    controller = AdaptiveKLController(coef=0.5, target=0.1, horizon=640.0)
    assert controller.after(kl=kl, samples=64).coef == pytest.approx(0.5 * factor)


def test_a_step_as_long_as_the_horizon_leaves_a_weight_above_zero() -> None:
    controller = AdaptiveKLController(coef=0.5, target=0.1, horizon=64.0)
    for _ in range(1000):
        controller = controller.after(kl=0.0, samples=64)
    assert 0.0 < controller.coef < 1e-90
