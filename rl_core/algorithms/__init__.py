"""Advantages, losses, KL, aggregation: pure functions, one idea a file, no I/O and no config object."""
