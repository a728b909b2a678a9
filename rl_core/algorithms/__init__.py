"""Advantages, losses, filters, KL, aggregation: one idea a file, and no I/O.

A loss, an estimator or a filter is a section of the config, whose method computes with its options.
"""
