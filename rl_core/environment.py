"""Environment variables that must be set before libraries are imported."""

import os

# Turns off the telemetry of all libraries. `DO_NOT_TRACK` alone is not enough: MLflow needs the word `true`, and Ray
# and Prefect's server do not read it.
TELEMETRY_OFF = {
    "DO_NOT_TRACK": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "WANDB_ERROR_REPORTING": "false",
}


def disable_telemetry() -> None:
    """Turn off the telemetry of all libraries, for this process and its children.

    A variable that is already set keeps its value. Libraries read these variables when they are imported, so entry
    points must call this first.
    """
    for name, value in TELEMETRY_OFF.items():
        os.environ.setdefault(name, value)


def share_cores() -> None:
    """Let OpenMP threads sleep while they wait for each other, unless the variable is already set.

    By default they spin. On a machine that does anything else, the spinning threads take cores away from the thread
    that they wait for: with two threads on two busy cores, a training step took five times as long. libgomp reads the
    variable when torch loads it, so entry points must call this first.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
