"""Settings of the process that must stand before a library is imported."""

import os

# Every library that reports its use to its makers, turned off. `DO_NOT_TRACK` alone is not enough: MLflow wants the
# word `true`, Ray and Prefect's server do not read it at all.
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
    """Turn the telemetry of every library off, for this process and its children.

    A variable that is set already keeps its value, so a person can still decide otherwise. The libraries read theirs
    when they are imported: entry points call this first.
    """
    for name, value in TELEMETRY_OFF.items():
        os.environ.setdefault(name, value)


def share_cores() -> None:
    """Let OpenMP threads sleep while they wait for one another, unless a variable says otherwise already.

    By default they spin. On a machine that does anything else (two engines, a browser) the spinning threads take the
    cores from the very thread they wait for: with two threads on two busy cores a training step took five times as
    long. libgomp reads the variable when torch loads it: entry points call this first.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
