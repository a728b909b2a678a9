"""Published baselines: whether a run reproduces one, and sets of baselines."""
