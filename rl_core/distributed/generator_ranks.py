"""The ranks that hold one generator together (tensor parallelism), and how they stay in step."""

from dataclasses import dataclass
from typing import Final

import torch
import torch.distributed as dist

from rl_core.distributed.place import ALONE, RankPlace


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratorRanks:
    """The ranks that hold one generator together, as one of them sees them: `size` consecutive ones. Their process
    group is of CPU tensors; None for a rank with a generator of its own."""

    place: RankPlace
    size: int
    group: dist.ProcessGroup | None

    @property
    def is_first(self) -> bool:
        """Whether this rank is the one that gives the rollouts away; all of them have sampled the same."""
        return self.place.rank % self.size == 0

    def all_say(self, yes: bool) -> bool:
        """Whether all ranks of the generator say yes; all of them ask equally often."""
        if self.group is None:
            return yes
        agreed = torch.tensor([int(yes)])
        dist.all_reduce(agreed, op=dist.ReduceOp.MIN, group=self.group)
        return bool(agreed)


WHOLE: Final = GeneratorRanks(place=ALONE, size=1, group=None)
"""A worker that is alone and has a whole generator."""
