"""Scorers of published evaluation scripts that are no reward here; each is loaded by its path, as a reward file is."""
