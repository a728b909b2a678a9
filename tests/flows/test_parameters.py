"""Prefect's form takes the overrides that the command line takes."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from flows.request import Override
from rl_core.config.loading import ConfigError, load_config

MIXTURE = (
    "data.train={type: mixture, sources: {my-charts: {type: counting, size: 8, scene_seed: 1}, "
    "hiyouga/geometry3k: {type: counting, size: 8, scene_seed: 3}}}"
)
QUICKSTART = Path(__file__).parents[2] / "configs/quickstart.yaml"


@pytest.mark.parametrize(
    "override",
    [
        "seed=3",
        " seed =3",
        "data.prompt_template=a=b.jinja",
        "reward.by_source.my-charts.function=count",
        "data.source_weights.my-charts=2",
        "data.source_weights.hiyouga/geometry3k=2",
        "data.train.sources.größe={type: counting, size: 8, scene_seed: 4}",
        "data.train.sources.two words={type: counting, size: 8, scene_seed: 4}",
        "data.system_prompt=\n",
    ],
)
def test_an_override_of_the_command_line_is_one_of_the_form(override: str) -> None:
    load_config(QUICKSTART, [MIXTURE, override])
    assert TypeAdapter(Override).validate_python(override) == override


@pytest.mark.parametrize("override", ["", "seed", "=3", "  =3"])
def test_what_changes_no_key_is_refused_by_both(override: str) -> None:
    with pytest.raises(ConfigError, match=r"must read key\.path=value"):
        load_config(QUICKSTART, [override])
    with pytest.raises(ValidationError):
        TypeAdapter(Override).validate_python(override)
