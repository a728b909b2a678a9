"""The place of a worker among the ranks."""

from dataclasses import dataclass
from typing import Literal

Layout = Literal["full", "hybrid", "none"]
"""Where weights, gradients and moments lie. `full`: spread over all ranks. `hybrid`: spread over the ranks of a
machine, and each machine has all of them. `none`: each rank has all of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPlace:
    """Which of the ranks a worker is, and the address at which they meet (`tcp://host:port`), empty for a single one.
    Consecutive ranks share a machine."""

    rank: int
    size: int
    ranks_per_node: int
    meeting: str

    @property
    def local_rank(self) -> int:
        """Number of the worker on its machine, from 0."""
        return self.rank % self.ranks_per_node


ALONE = RankPlace(rank=0, size=1, ranks_per_node=1, meeting="")
"""The place of a worker that trains without others."""
