"""The process of a flow: opens and ends its run, handles signals, and talks to Prefect's server."""
