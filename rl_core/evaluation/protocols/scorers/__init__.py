"""Scorers of published evaluation scripts that are not among the built-in rewards; loaded by path, like a reward
file."""
