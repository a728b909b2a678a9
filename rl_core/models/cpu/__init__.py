"""Functions and layers that take the place of slower ones when a model computes on a CPU. Results agree up to float32
rounding (1e-6), and equal runs stay equal to the bit.

SIGHTLINE_CPU_MODEL=0 takes none of them (docs/troubleshooting.md).
"""
