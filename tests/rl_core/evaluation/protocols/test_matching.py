from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.evaluation.protocols.easyr1 import GEO3K_EASYR1
from rl_core.evaluation.protocols.matching import departures
from rl_core.evaluation.protocols.r1v import SUPERCLEVR_R1V

ROOT = Path(__file__).parents[4]
BASELINE = Path("configs/baselines/qwen2_5_vl_3b_geo3k_grpo.yaml")


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_a_baseline_follows_its_protocol() -> None:
    assert departures(load_config(BASELINE), GEO3K_EASYR1) == []


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("data.prompt_template=configs/prompts/r1v.jinja", "the prompt text of configs/prompts/r1v.jinja"),
        ("data.prompt_template=null", "the prompt text of None"),
        ("data.min_pixels=3136", "data.min_pixels is 3136, the protocol's 262144"),
        ("data.max_pixels=401408", "data.max_pixels is 401408"),
        ("data.max_prompt_length=1024", "data.max_prompt_length is 1024"),
        ("data.system_prompt=Think.", "data.system_prompt"),
        ("data.validation.name=hiyouga/geometry3k@validation", "data.validation is not hiyouga/geometry3k@test"),
        ("data.validation.limit=10", "data.validation is not"),
        ("evaluation.limit=10", "evaluation.limit takes 10"),
        ("evaluation.modes=[greedy, sampled]", "evaluation.modes starts with greedy"),
        ("evaluation.n=4", "evaluation.n is 4, the protocol's 1"),
        ("evaluation.temperature=1.0", "evaluation.temperature is 1.0"),
        ("evaluation.top_p=1.0", "evaluation.top_p is 1.0"),
        ("rollout.max_response_length=1024", "rollout.max_response_length is 1024"),
        ("reward.function=r1v", "reward.function is r1v, the protocol's math"),
        ("reward.grader=math_verify", "reward.grader is math_verify, the protocol's mathruler"),
        ("evaluation.accuracy_key=format", "evaluation.accuracy_key is format"),
    ],
)
def test_every_departure_is_named(override: str, named: str) -> None:
    (found,) = departures(load_config(BASELINE, [override]), GEO3K_EASYR1)
    assert found.startswith(named)


def test_another_protocol_is_far_away() -> None:
    assert len(departures(load_config(BASELINE), SUPERCLEVR_R1V)) >= 5
