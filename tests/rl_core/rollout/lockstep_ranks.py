"""What ranks that hold generators together do in tests/rl_core/rollout/test_lockstep.py."""

from collections.abc import Generator
from itertools import islice

import torch
import torch.distributed as dist

from rl_core.distributed.place import RankPlace
from rl_core.distributed.ranks import Ranks
from rl_core.rollout.vllm_engine import Lockstep


class Engine:
    """An engine whose steps are computed by all of its ranks together, as far as Lockstep knows one."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks.generator
        self.steps = 0

    def generate(
        self, steps: int, *, fails_at: int | None = None, cannot_add_at: int | None = None
    ) -> Generator[int, None, None]:
        """Yield the number of each step."""
        lockstep = Lockstep(self.ranks)
        try:
            for number in range(steps + 1):
                if number == cannot_add_at:
                    raise ValueError("no such image")
                if not lockstep.goes_on(wanted=number < steps):
                    return
                with lockstep.step():
                    self._compute(number)
                    if number == fails_at:
                        raise RuntimeError("out of memory")
                yield number
        finally:
            lockstep.leave()

    def _compute(self, number: int) -> None:
        """Without the others this would wait for ever; with another step of theirs it would find another sum."""
        total = torch.tensor([number])
        dist.all_reduce(total, group=self.ranks.group)
        assert int(total) == number * self.ranks.size
        self.steps += 1


def generate_together(place: RankPlace) -> dict[str, object]:
    """Generations with every kind of end, each followed by a whole one; the two generators take other numbers of
    steps."""
    ranks = Ranks.join(place, "full", ranks_per_generator=2)
    engine, other = Engine(ranks), place.rank // 2
    is_first = ranks.generator.is_first
    found: dict[str, object] = {"is first": is_first, "topology": ranks.topology}
    found["whole"] = [*engine.generate(3 + other)]
    found["left by the first"] = taken(engine.generate(9), 4 if is_first else 9)
    found["left by the other"] = taken(engine.generate(9), 9 if is_first else 2)
    found["left after the last step"] = taken(engine.generate(2), 2 if is_first else 9)
    found["cannot add"] = error_of(engine.generate(9, cannot_add_at=None if is_first else 5))
    found["fails everywhere"] = error_of(engine.generate(9, fails_at=1))
    found["steps so far"] = engine.steps
    found["whole again"] = [*engine.generate(2)]
    ranks.close()
    return found


def taken(steps: Generator[int, None, None], most: int) -> list[int]:
    """The first steps, after which the generation is left."""
    found = [*islice(steps, most)]
    steps.close()
    return found


def error_of(steps: Generator[int, None, None]) -> str | int:
    """The error that ends a generation; without one the number of its steps."""
    try:
        return len([*steps])
    except (RuntimeError, ValueError) as error:
        return f"{error}"
