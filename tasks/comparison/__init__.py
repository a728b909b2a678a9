"""The comparison of runs: one page, its figures, and both in MLflow."""
