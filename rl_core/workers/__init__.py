"""The workers: what the loop asks of the processes that hold model and generator."""
