"""Measurements beside peers, and the long proofs; results lie in benchmarks/results."""
