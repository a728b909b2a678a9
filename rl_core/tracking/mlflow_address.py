"""The address of MLflow. Imports no MLflow."""

import os

from rl_core.config.stages import TrackingConfig

VARIABLE = "MLFLOW_TRACKING_URI"


def mlflow_address(tracking: TrackingConfig) -> str | None:
    """Address of the MLflow server or database: MLflow's environment variable, else the config's key; None when the
    config turns MLflow off. The variable comes first, since the address depends on the machine that runs, and may
    contain a password, which a config may not."""
    return tracking.mlflow_uri and (os.environ.get(VARIABLE) or tracking.mlflow_uri)
