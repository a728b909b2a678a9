"""A config holds no secret: one that is written into it is refused, and the refusal does not repeat it."""

from datetime import datetime

import pytest

from rl_core.config.loading import ConfigError, load_config, validate_config
from tests.rl_core.config.test_loading import REPOSITORY

QUICKSTART = REPOSITORY / "configs/quickstart.yaml"


@pytest.mark.parametrize(
    ("override", "advice"),
    [
        ("tracking.mlflow_uri=http://weekly:geheim@mlflow:5000", "MLFLOW_TRACKING_PASSWORD"),
        ("tracking.mlflow_uri=postgresql://mlflow:geheim@db/mlflow", "MLFLOW_TRACKING_URI"),
        ("tracking.mlflow_uri=postgresql://db/mlflow?user=m&password=geheim", "MLFLOW_TRACKING_URI"),
        ("storage.address=sftp://weekly:geheim@files/runs", "AWS_SECRET_ACCESS_KEY"),
        ("reward.kwargs.api_key=geheim", "environment"),
        ("reward.kwargs.judges=[{api_key: geheim}]", "environment"),
        ("tools.mcp.a={command: [uvx, server, --api-key, geheim]}", "variables"),
        ("tools.mcp.a={command: [env, HF_TOKEN=geheim, server]}", "variables"),
        ("tools.mcp.a={url: 'http://me:geheim@host/mcp'}", "command"),
        ("algorithm.loss={type: custom, function: a.py:b, kwargs: {api_key: geheim}}", "environment"),
    ],
)
def test_a_secret_is_refused_and_not_repeated(override, advice):
    with pytest.raises(ConfigError) as refused:
        load_config(QUICKSTART, [override])
    key = override.partition("=")[0]
    assert advice in str(refused.value)
    assert key.rpartition(".")[0] in str(refused.value)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    "override",
    [
        "tracking.mlflow_uri=http://mlflow:5000",
        "tracking.mlflow_uri=postgresql+psycopg2://mlflow@db/mlflow",
        "reward.kwargs.max_tokens=5",
        "reward.kwargs.stop_token=end",
        "tools.mcp.a={command: [python, secret_server.py, --key=id]}",
    ],
)
def test_names_that_are_no_secrets_pass(override):
    load_config(QUICKSTART, [override])


SECRETS = {
    "reward": {"function": "count", "kwargs": {"api_key": "geheim"}},
    "tracking": {"mlflow_uri": "http://u:geheim@h/"},
}


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({}, "experiment: Field required"),
        ({"data": {"train": {"path": "x", "note": "http://u:geheim@h/"}}}, "data.train: Unable to extract tag"),
        ({"data": {"train": {"type": "http://u:geheim@h/"}}}, "Input tag 'http://u:***@h/' found"),
        ({"experiment": [{"password": "geheim"}]}, "experiment: Input should be a valid string\n"),
        ({"seed": "http://u:geheim@h/"}, "(got 'http://u:***@h/')"),
        ({"reward": {"kwargs": {"api_key": ["geheim"]}}}, "reward.kwargs: api_key looks like a secret"),
        ({"reward": {"kwargs": {"api_key": datetime(2026, 1, 2), "hf_token": b"geheim"}}}, "(got '***')"),
        ({"reward": {"mixture": {"kwargs": {"api_key": "geheim"}}}}, "reward.mixture: Input should be a valid tuple"),
        ({"http://u:geheim@h/": 1}, "http://u:***@h/: unknown key"),
    ],
)
def test_no_refusal_repeats_a_secret_that_stands_beside_it(section, words):
    with pytest.raises(ConfigError) as refused:
        validate_config({**SECRETS, **section}, "own.yaml")
    assert words in f"{refused.value}\n"
    assert "geheim" not in str(refused.value) and "2026" not in str(refused.value)


def test_a_secret_of_the_environment_is_shown_by_its_name(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_geheim")
    with pytest.raises(ConfigError, match=r"seed: .*\(got '\[HF_TOKEN\]'\)"):
        validate_config({"seed": "hf_geheim"}, "own.yaml")


def test_a_key_of_a_column_is_no_secret():
    with pytest.raises(ConfigError, match=r"prompt_key: .*\(got 3\)"):
        load_config(QUICKSTART, ["data.train={type: local, path: x}", "data.train.columns.prompt_key=3"])


@pytest.mark.parametrize(
    "override",
    [
        "http://u:geheim@h/",
        "tracking.mlflow_uri=[http://u:geheim@h/",
        "reward.kwargs.api_key=[geheim",
        "reward.kwargs={api_key: geheim, api_key: geheim}",
        "seed.api_key=geheim",
        "reward..api_key=geheim",
    ],
)
def test_an_override_that_cannot_be_read_is_refused_without_its_secret(override):
    with pytest.raises(ConfigError, match="override") as refused:
        load_config(QUICKSTART, ["seed=1", override])
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    "line", ["api_key: 'geheim", "api_key: [geheim", "geheim: {x: %geheim}", "extends: {key: geheim}"]
)
def test_a_file_that_cannot_be_read_is_refused_without_its_lines(tmp_path, line):
    path = tmp_path / "own.yaml"
    path.write_text(f"{line}\n")
    with pytest.raises(ConfigError, match=r"own\.yaml") as refused:
        load_config(path)
    assert "geheim" not in str(refused.value)
