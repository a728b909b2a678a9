"""Environment variables of a flow's process, which must be set before Prefect, vLLM or MLflow is imported.

Every value is a default: a variable that is already set keeps its value.
"""

import os
from typing import Final

from rl_core.environment import ALLOCATOR, disable_telemetry, share_cores
from rl_core.redaction import redact_logs

FLOW_DEFAULTS: Final = {
    # A fresh database on a slow or busy machine needs longer than Prefect's 20 s.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    # Prefect's default of 5 retries delays the end of a run by minutes when the server is gone.
    "PREFECT_CLIENT_MAX_RETRIES": "2",
    **ALLOCATOR,
    # Prefect's pages show the logs of this project too.
    "PREFECT_LOGGING_EXTRA_LOGGERS": "flows,tasks,rl_core",
}

CONSOLE_DEFAULTS: Final = {
    # The command line shows bars and messages itself; all logs are in the run's log.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_INTERNAL_LOGGING_LEVEL": "CRITICAL",
    "VLLM_CONFIGURE_LOGGING": "0",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    # transformers shows its bars only if the hub does.
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}


def set_flow_defaults() -> None:
    """Set the defaults of every process that runs a flow, and keep secrets out of its logs."""
    disable_telemetry()
    share_cores()
    redact_logs()
    for name, value in FLOW_DEFAULTS.items():
        os.environ.setdefault(name, value)


def set_console_defaults() -> None:
    """Set the defaults of a flow's process, and the defaults of a terminal."""
    set_flow_defaults()
    for name, value in CONSOLE_DEFAULTS.items():
        os.environ.setdefault(name, value)
