"""The ranks that hold one generator together (tensor parallelism), and how they stay in step."""

from dataclasses import dataclass
from typing import Final

import torch
import torch.distributed as dist

from rl_core.distributed.place import ALONE, RankPlace


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratorRanks:
    """The ranks that hold one generator together, as one of them sees them.

    Attributes:
        place: Which of all ranks this one is.
        size: How many consecutive ranks hold a generator together.
        group: Process group of CPU tensors among them; None for a rank with a generator of its own.
    """

    place: RankPlace
    size: int
    group: dist.ProcessGroup | None

    @property
    def is_first(self) -> bool:
        """Whether this rank is the one that gives the rollouts away; all of them have sampled the same."""
        return self.place.rank % self.size == 0

    def all_say(self, yes: bool) -> bool:
        """Whether all ranks of the generator say yes. Each of them must ask the same number of times."""
        if self.group is None:
            return yes
        agreed = torch.tensor([int(yes)])
        dist.all_reduce(agreed, op=dist.ReduceOp.MIN, group=self.group)
        return bool(agreed)


WHOLE: Final = GeneratorRanks(place=ALONE, size=1, group=None)
"""A worker that is alone and has a whole generator."""
