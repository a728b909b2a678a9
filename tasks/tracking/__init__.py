"""A run in MLflow and in the other trackers."""
