"""Ranks meet, exchange values, fail together and part; a rank that is alone does none of it."""

import pytest
import torch.distributed as dist

from rl_core.distributed.place import ALONE
from rl_core.distributed.ranks import LONE, TOPOLOGY_ALONE, Ranks
from tests.rl_core.distributed.exchanges import exchange
from tests.rl_core.distributed.spmd import run_ranks


def test_two_ranks_exchange_values_and_errors(tmp_path):
    ranks = run_ranks(exchange, tmp_path, size=2)
    assert [found["that cannot be sent"] for found in ranks] == ["Exception: FunnyError: funny", "FunnyError: funny"]
    for found in ranks:
        assert found["gathered"] == [{"rank": 0}, {"rank": 1}]
        assert found["plain"] == "ValueError: of rank 1"
        assert found["nothing"] == "went wrong"
        assert found["in a thread"] == [3.0 * 2.0**19]
        assert found["interface"] == "lo"
        assert found["topology"] == "2 workers, 2 on each machine, sharding full"
        assert found["left"] is False


def test_a_rank_that_is_alone_meets_nobody(monkeypatch):
    monkeypatch.setattr(dist, "init_process_group", lambda *_args, **_kwargs: pytest.fail("it meets others"))
    monkeypatch.setattr(dist, "destroy_process_group", lambda *_: pytest.fail("it parts from others"))
    ranks = Ranks.join(ALONE, "full")
    assert (ranks.objects, ranks.gather(3), ranks.topology, ranks.is_first) == (None, [3], TOPOLOGY_ALONE, True)
    with pytest.raises(ValueError, match="its own"), LONE.succeed_together():
        raise ValueError("its own")
    ranks.close()
