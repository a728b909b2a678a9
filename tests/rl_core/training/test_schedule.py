import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.config.training import OptimConfig
from rl_core.training.optimizer import scheduled_lr, warmup_steps


def rates(total_steps: int, **options) -> list[float]:
    config = OptimConfig(lr=1.0, **options)
    return [scheduled_lr(step, config=config, total_steps=total_steps) for step in range(total_steps)]


def test_warm_up_rises_linearly_and_then_the_rate_stays_or_falls_over_half_a_wave():
    assert rates(5, lr_warmup_steps=3) == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    found = rates(6, lr_warmup_steps=2, lr_scheduler_type="cosine")
    assert found == pytest.approx([1 / 3, 2 / 3, 1.0, 0.8535534, 0.5, 0.1464466])


def test_linear_falls_along_a_line_from_the_warm_up_on():
    found = rates(6, lr_warmup_steps=2, lr_scheduler_type="linear", min_lr_ratio=0.2)
    assert found[2:] == pytest.approx([found[2] * share for share in (1.0, 0.8, 0.6, 0.4)])


def test_wsd_stays_and_falls_along_a_line_at_the_end():
    found = rates(10, lr_warmup_steps=2, lr_scheduler_type="wsd", lr_decay_ratio=0.4)
    assert found[2:] == pytest.approx([found[2] * share for share in (1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25)])
    assert rates(10, lr_scheduler_type="wsd", lr_decay_ratio=1.0) == pytest.approx(
        rates(10, lr_scheduler_type="linear")
    )


def test_cosine_ends_at_the_smallest_rate_and_stays_there():
    config = OptimConfig(lr=2.0, lr_scheduler_type="cosine", min_lr_ratio=0.1)
    assert [scheduled_lr(step, config=config, total_steps=8) for step in (8, 9)] == pytest.approx([0.2, 0.2])


@given(
    total=st.integers(1, 300),
    warmup=st.integers(0, 300),
    kind=st.sampled_from(["constant", "linear", "cosine", "wsd"]),
    floor=st.floats(0.0, 1.0),
)
def test_no_rate_is_above_lr_and_after_the_warm_up_none_rises(total, warmup, kind, floor):
    found = rates(total, lr_warmup_steps=warmup, lr_scheduler_type=kind, min_lr_ratio=floor)
    assert all(0.0 < rate <= 1.0 or floor == 0.0 for rate in found)
    assert found[warmup:] == sorted(found[warmup:], reverse=True)


@pytest.mark.parametrize(
    ("ratio", "total", "at_once", "steps"),
    [(0.05, 60, 1, 3), (0.05, 50, 1, 2), (0.05, 50 * 4, 4, 8), (0.1, 9 * 8, 8, 0), (0.0, 60, 1, 7)],
)
def test_a_ratio_is_a_share_of_the_training_steps_rounded_down(ratio, total, at_once, steps):
    """EasyR1's int(ratio * training_steps), in optimizer steps; without a ratio the number of steps counts."""
    config = OptimConfig(lr_warmup_ratio=ratio, lr_warmup_steps=7 if ratio == 0.0 else 0)
    assert warmup_steps(config, total_steps=total, steps_at_once=at_once) == steps
