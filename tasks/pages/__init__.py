"""What Prefect's pages show of a run."""
