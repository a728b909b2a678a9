"""The flows that a person starts, and the command line."""

from flows.settings import set_flow_defaults

# Before any flow imports Prefect, vLLM or MLflow, which read their settings when they are imported.
set_flow_defaults()
