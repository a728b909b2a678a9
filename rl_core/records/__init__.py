"""The record of a run: metrics, timings, events and rollouts in plain files."""
