"""What takes the place of vLLM's own code on a CPU. Results are equal to the bit; only the time differs.

vLLM's Python treats one request after the other, and is written for GPUs, whose kernels run meanwhile. On a CPU it
takes half of the time in which a small model generates. The modules here override private methods of vLLM: if a new
version breaks them, SIGHTLINE_CPU_ENGINE=0 takes none of them (docs/troubleshooting.md).
"""
