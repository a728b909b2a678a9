"""Published baselines: whether a run reproduces one, and a set of them."""
