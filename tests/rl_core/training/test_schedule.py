import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.config.training import OptimConfig
from rl_core.training.schedule import scheduled_lr


def rates(total_steps: int, **options) -> list[float]:
    config = OptimConfig(lr=1.0, **options)
    return [scheduled_lr(step, config=config, total_steps=total_steps) for step in range(total_steps)]


def test_warm_up_rises_linearly_to_the_rate_and_constant_stays() -> None:
    assert rates(5, lr_warmup_steps=3) == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])


def test_cosine_falls_over_half_a_wave_after_the_warm_up() -> None:
    found = rates(6, lr_warmup_steps=2, lr_scheduler_type="cosine")
    assert found == pytest.approx([1 / 3, 2 / 3, 1.0, 0.8535534, 0.5, 0.1464466])


def test_cosine_ends_at_the_smallest_rate_and_stays_there() -> None:
    config = OptimConfig(lr=2.0, lr_scheduler_type="cosine", min_lr_ratio=0.1)
    assert [scheduled_lr(step, config=config, total_steps=8) for step in (8, 9)] == pytest.approx([0.2, 0.2])


@given(
    total=st.integers(1, 300),
    warmup=st.integers(0, 300),
    kind=st.sampled_from(["constant", "cosine"]),
    floor=st.floats(0.0, 1.0),
)
def test_no_rate_is_above_lr_and_after_the_warm_up_none_rises(total: int, warmup: int, kind: str, floor: float) -> None:
    found = rates(total, lr_warmup_steps=warmup, lr_scheduler_type=kind, min_lr_ratio=floor)
    assert all(0.0 < rate <= 1.0 or floor == 0.0 for rate in found)
    assert found[warmup:] == sorted(found[warmup:], reverse=True)
