"""Where MLflow is, and who decides it."""

import os

from rl_core.config.stages import TrackingConfig

VARIABLE = "MLFLOW_TRACKING_URI"


def mlflow_address(tracking: TrackingConfig) -> str | None:
    """Address of the MLflow server or database: MLflow's own variable, else the config's; None when the config turns
    MLflow off. Where a run is shown belongs to the machine that runs it, and an address may hold a password, which a
    config may not."""
    return tracking.mlflow_uri and (os.environ.get(VARIABLE) or tracking.mlflow_uri)
