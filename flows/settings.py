"""Environment of a flow's process: what must stand before Prefect, vLLM or MLflow is imported.

Every value is a default: a variable that is set already keeps its value.
"""

import os
from typing import Final

from rl_core.environment import disable_telemetry, share_cores
from rl_core.redaction import redact_logs

FLOW_DEFAULTS: Final = {
    # A fresh database on a slow or busy machine needs longer than Prefect's 20 s.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    # Prefect's own 5 retries hold a finished run up for minutes when its server is gone.
    "PREFECT_CLIENT_MAX_RETRIES": "2",
    # What this project logs is on Prefect's pages too.
    "PREFECT_LOGGING_EXTRA_LOGGERS": "flows,tasks,rl_core",
}

CONSOLE_DEFAULTS: Final = {
    # The command line shows bars and messages itself; everything that is logged goes to the run's log.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_INTERNAL_LOGGING_LEVEL": "CRITICAL",
    "VLLM_CONFIGURE_LOGGING": "0",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    # transformers' bars follow the hub's.
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}


def set_flow_defaults() -> None:
    """Defaults of every process that runs a flow; its logs hold no secrets."""
    disable_telemetry()
    share_cores()
    redact_logs()
    _set_defaults(FLOW_DEFAULTS)


def set_console_defaults() -> None:
    """The same, and the defaults of a terminal."""
    set_flow_defaults()
    _set_defaults(CONSOLE_DEFAULTS)


def _set_defaults(defaults: dict[str, str]) -> None:
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
