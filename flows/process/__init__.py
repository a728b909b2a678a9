"""The process of a flow: its run is opened, watched by signals and pages, and ended; Prefect's server beside it."""
