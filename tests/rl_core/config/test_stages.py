"""The machine decides where runs are shown, the config whether they are."""

import pytest

from rl_core.config.stages import TrackingConfig

SERVER = "http://weekly:geheim@mlflow:5000"


@pytest.mark.parametrize(
    ("configured", "environment", "address"),
    [
        ("sqlite:///mlflow.db", None, "sqlite:///mlflow.db"),
        ("sqlite:///mlflow.db", "", "sqlite:///mlflow.db"),
        ("sqlite:///mlflow.db", SERVER, SERVER),
        (None, SERVER, None),
        (None, None, None),
    ],
)
def test_the_environment_wins_over_an_address_but_does_not_turn_mlflow_on(
    configured, environment, address, monkeypatch
):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if environment is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", environment)
    assert TrackingConfig(mlflow_uri=configured).mlflow_address == address
