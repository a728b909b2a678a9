"""What takes the place of vLLM's own code on a CPU. Results are equal to the bit and only the time differs, but for
`products`: one makes a response independent of the number of requests beside it, and one adds in another order; and for
`image_blocks`, without which families that need it are refused.

The modules here rely on what vLLM keeps to itself: if a new version breaks them, SIGHTLINE_CPU_ENGINE=0 takes none of
them (docs/troubleshooting.md).
"""
