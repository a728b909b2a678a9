"""What two ranks exchange in tests/rl_core/distributed/test_ranks.py."""

import os
import threading

import torch
import torch.distributed as dist

from rl_core.distributed.place import RankPlace
from rl_core.distributed.ranks import Ranks


class FunnyError(Exception):
    """An error that cannot be pickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__("funny")


def exchange(place: RankPlace) -> dict[str, object]:
    """Gather values, fail alone and together, and leave."""
    ranks = Ranks.join(place, "full")
    assert ranks.objects is not None
    found: dict[str, object] = {"gathered": ranks.gather({"rank": place.rank}), "topology": ranks.topology}
    for name, error in (("plain", ValueError("of rank 1")), ("that cannot be sent", FunnyError(1, 2))):
        try:
            with ranks.succeed_together():
                if place.rank == 1:
                    raise error
        except Exception as raised:  # noqa: BLE001 - whatever it is, it is compared
            found[name] = f"{type(raised).__name__}: {raised}"
    with ranks.succeed_together():
        found["nothing"] = "went wrong"
    found["in a thread"] = sum_in_a_thread(ranks)
    found["interface"] = os.environ["GLOO_SOCKET_IFNAME"]
    ranks.close()
    ranks.close()
    found["left"] = dist.is_initialized()
    return found


def sum_in_a_thread(ranks: Ranks) -> list[float]:
    """A sum in the process group of the checkpoints, while values are gathered."""
    total = torch.full((1000,), float(ranks.place.rank + 1))
    thread = threading.Thread(target=lambda: [dist.all_reduce(total, group=ranks.checkpoint_group) for _ in range(20)])
    thread.start()
    for number in range(50):
        assert ranks.gather(number) == [number] * ranks.place.size
    thread.join()
    return total.unique().tolist()
