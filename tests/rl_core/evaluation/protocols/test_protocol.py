from dataclasses import replace
from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.data.prompts import PromptTemplate
from rl_core.evaluation.protocols.protocol import departures
from rl_core.evaluation.protocols.registry import GEO3K_EASYR1, GEOQA_R1V, PROTOCOLS, SUPERCLEVR_R1V, protocol_named
from rl_core.rewards.registry import resolve_rewards
from tasks.cache.named_files import located_config

CONFIGS = Path(__file__).parents[4] / "configs"
BASELINE = CONFIGS / "baselines" / "qwen2_5_vl_3b_geo3k_grpo.yaml"


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)
def test_every_protocol_is_whole(protocol):
    PromptTemplate(protocol.prompt)
    (spec,) = resolve_rewards(protocol.reward_config()).specs
    assert spec.has_parser, "a result says how many responses hold no answer"
    config = protocol.evaluation_config()
    assert (config.modes, config.n, config.temperature) == (
        (protocol.answering.mode,),
        protocol.answering.n,
        protocol.answering.temperature,
    )
    assert all(protocol.judging.versions().values())
    name, _, version = protocol.name.rpartition("@")
    assert name and version.isdecimal()


@pytest.mark.parametrize(
    "change",
    [
        {"name": "geo3k-easyr1@2"},
        {"prompt": GEO3K_EASYR1.prompt + " Please."},
        {"prompt_origin": "another"},
        {"max_prompt_length": 4096},
        {"min_pixels": 1},
        {"max_pixels": 10_000},
        {"answering": replace(GEO3K_EASYR1.answering, temperature=1.0)},
        {"judging": replace(GEO3K_EASYR1.judging, function="r1v")},
        {"judging": replace(GEO3K_EASYR1.judging, kwargs={"grader": "math_verify"})},
        {"judging": replace(GEO3K_EASYR1.judging, packages=("numpy",))},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_setting_that_moves_a_number_moves_the_digest(change):
    assert replace(GEO3K_EASYR1, **change).digest() != GEO3K_EASYR1.digest()


def test_the_name_of_a_protocol_does_not_depend_on_where_it_is_installed():
    assert GEOQA_R1V.record()["judging"]["function"] == "geoqa_r1v.py:compute_score"


def test_the_words_are_those_that_the_configs_train_with():
    for name, file in (("geo3k-easyr1@1", "math.jinja"), ("clevr-count-easyr1@1", "r1v.jinja")):
        assert PROTOCOLS[name].prompt == (CONFIGS / "prompts" / file).read_text().strip()


def test_a_prompt_from_a_file_is_shown_by_name_and_hash(tmp_path):
    path = tmp_path / "published.jinja"
    path.write_text("{{ content }} As published.")
    protocol = GEOQA_R1V.with_prompt(path)
    assert protocol.prompt == "{{ content }} As published."
    assert protocol.prompt_origin.startswith("the text of published.jinja, sha256 ")
    assert protocol.digest() != GEOQA_R1V.digest()


def test_several_samples_make_sense_where_something_is_sampled():
    assert GEO3K_EASYR1.with_samples(8).answering.n == 8
    with pytest.raises(ValueError, match="geoqa-r1v@1 answers greedily"):
        GEOQA_R1V.with_samples(8)


def test_an_unknown_name_leads_to_the_nearest():
    assert protocol_named("geoqa-r1v@1") is GEOQA_R1V
    with pytest.raises(ValueError, match=r"did you mean `geoqa-r1v@1`\?"):
        protocol_named("geoqa-r1v@2")
    with pytest.raises(ValueError, match="there is geo3k-easyr1@1, "):
        protocol_named("xyz")


def baseline(*overrides: str) -> RunConfig:
    config = load_config(BASELINE, overrides)
    return located_config(config)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("data.prompt_template=../prompts/r1v.jinja", "the prompt text of r1v.jinja"),
        ("data.prompt_template=null", "the prompt text of no file"),
        ("data.min_pixels=3136", "data.min_pixels is 3136, the protocol's 262144"),
        ("data.system_prompt=Think.", "data.system_prompt"),
        ("data.validation.name=hiyouga/geometry3k@validation", "data.validation is not hiyouga/geometry3k@test"),
        ("evaluation.limit=10", "evaluation.limit takes 10"),
        ("tools={use: [calculator]}", "tools may be called"),
        ("evaluation.modes=[greedy, sampled]", "evaluation.modes starts with greedy"),
        ("evaluation.n=4", "evaluation.n is 4, the protocol's 1"),
        ("rollout.max_response_length=1024", "rollout.max_response_length is 1024"),
        ("reward.function=r1v", "reward.function is r1v, the protocol's math"),
        ("reward.grader=math_verify", "reward.grader is math_verify, the protocol's mathruler"),
        ("evaluation.accuracy_key=format", "evaluation.accuracy_key is format"),
    ],
)
def test_every_departure_is_named(override, named):
    (found,) = departures(baseline(override), GEO3K_EASYR1)
    assert found.startswith(named)


def test_a_baseline_follows_its_protocol_and_no_other():
    assert departures(baseline(), GEO3K_EASYR1) == []
    assert departures(baseline("tools={use: [calculator]}", "evaluation.tools=none"), GEO3K_EASYR1) == []
    assert len(departures(baseline(), SUPERCLEVR_R1V)) >= 5
