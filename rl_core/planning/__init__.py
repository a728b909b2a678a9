"""Computes what a run needs, and whether it can work, from its configuration alone."""
