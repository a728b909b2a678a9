"""What a config means that says nothing of a setting which follows from another one."""

import pytest

from rl_core.config.algorithm import TruncatedCorrection
from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from tests.rl_core.small_run import SMALL

STALE = "rollout.staleness=1"


def configure(*overrides: str) -> RunConfig:
    return load_config(SMALL, overrides)


def test_rollouts_that_wait_are_corrected_unless_the_config_says_how():
    algorithm = configure(STALE).algorithm
    assert algorithm.old_log_probs == "recompute" and algorithm.correction == TruncatedCorrection(type="tis")
    masked = configure(STALE, "algorithm.correction={type: mis}").algorithm
    assert masked.old_log_probs == "recompute" and masked.correction is not None and masked.correction.type == "mis"
    assert configure().algorithm.old_log_probs == "engine" and configure().algorithm.correction is None


@pytest.mark.parametrize(
    ("overrides", "old_log_probs"),
    [
        ("algorithm.old_log_probs=engine", "engine"),
        ("algorithm.old_log_probs=recompute", "recompute"),
        ("algorithm.correction=null", "engine"),
        ("algorithm.online_filtering={filter_key: overall, surplus: keep}", "engine"),
    ],
)
def test_a_configured_correction_of_stale_rollouts_is_kept(overrides, old_log_probs):
    algorithm = configure(STALE, overrides).algorithm
    assert algorithm.old_log_probs == old_log_probs and algorithm.correction is None


def test_a_recorded_config_is_read_as_it_was():
    """It names every setting, so that a later default changes nothing."""
    for overrides in ((), (STALE,), (STALE, "algorithm.old_log_probs=engine")):
        config = configure(*overrides)
        assert RunConfig.model_validate(config.model_dump()) == config
