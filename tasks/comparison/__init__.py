"""The comparison of runs: an HTML page and its figures, which are also shown in MLflow."""
