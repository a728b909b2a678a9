"""A pattern that backtracks without end is found without waiting for its end."""

from collections.abc import Callable

import pytest

from rl_core.config.run import RunConfig
from rl_core.planning import patterns
from rl_core.planning.patterns import ends_soon
from rl_core.planning.preflight import check_config

ENDLESS = "(([a-z_.0-9]+)+)+X"


@pytest.fixture(autouse=True)
def _short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "SECONDS", 0.5)


def test_what_is_compared_within_seconds_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "SECONDS", 60.0)
    assert ends_soon(r".*mlp\.\w+_proj", frozenset(f"layers.{number}.mlp.up_proj" for number in range(1000)))


@pytest.mark.parametrize(
    ("lora", "key"),
    [
        (f'{{target_modules: "{ENDLESS}"}}', "model.lora.target_modules"),
        (f'{{exclude_modules: "{ENDLESS}"}}', "model.lora.exclude_modules"),
    ],
)
@pytest.mark.parametrize("model", ["{type: tiny}", "{type: pretrained, path: nobody/knows-this-model}"])
def test_an_endless_pattern_is_the_one_problem_of_a_model(
    configure: Callable[..., RunConfig], lora: str, key: str, model: str
) -> None:
    (problem,) = check_config(configure(f"model.source={model}", f"model.lora={lora}"))
    assert problem.where == key and problem.fatal
    assert "does not end within" in problem.what
