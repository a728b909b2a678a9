"""A config holds no secret: one that is written into it is refused, and the refusal does not repeat it."""

import pytest

from rl_core.config.loading import ConfigError, load_config
from tests.rl_core.config.test_loading import REPOSITORY

QUICKSTART = REPOSITORY / "configs/quickstart.yaml"


@pytest.mark.parametrize(
    ("override", "advice"),
    [
        ("tracking.mlflow_uri=http://weekly:geheim@mlflow:5000", "MLFLOW_TRACKING_PASSWORD"),
        ("tracking.mlflow_uri=postgresql://mlflow:geheim@db/mlflow", "MLFLOW_TRACKING_URI"),
        ("tracking.mlflow_uri=postgresql://db/mlflow?user=m&password=geheim", "MLFLOW_TRACKING_URI"),
        ("reward.kwargs.api_key=geheim", "environment"),
        ("reward.kwargs.judge_password=geheim", "environment"),
        ("reward.kwargs.hf_token=geheim", "environment"),
    ],
)
def test_a_secret_is_refused_and_not_repeated(override: str, advice: str) -> None:
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
    ],
)
def test_what_is_no_secret_passes(override: str) -> None:
    load_config(QUICKSTART, [override])
