"""Advantages, losses, filters, KL and aggregation: one idea in each file, and no I/O.

A loss, an estimator or a filter is a section of the config: its fields are the options, its method the formula.
"""
