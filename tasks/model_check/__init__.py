"""Checks of a model, which make its certificate: trainer and generator compute it, and compute the same."""
