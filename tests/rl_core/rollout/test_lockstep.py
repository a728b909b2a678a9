"""Ranks that hold a generator together end every generation after the same step, whoever of them ends it."""

from tests.rl_core.distributed.spmd import run_ranks
from tests.rl_core.rollout.lockstep_ranks import generate_together


def test_two_generators_of_two_ranks_stay_in_step_whatever_ends_a_generation(tmp_path):
    found = run_ranks(generate_together, tmp_path, size=4)
    assert [of_rank["is first"] for of_rank in found] == [True, False, True, False]
    assert found[0]["topology"] == "4 workers, 4 on each machine, sharding full, 2 for each generator"
    for rank, of_rank in enumerate(found):
        assert of_rank["whole"] == [*range(3 + rank // 2)]
        assert of_rank["left by the first"] == [0, 1, 2, 3]
        assert of_rank["left after the last step"] == [0, 1]
        assert of_rank["fails everywhere"] == "out of memory"
        assert of_rank["whole again"] == [0, 1]
    first, other = found[0], found[1]
    assert (len(first["left by the other"]), len(other["left by the other"])) == (2, 2)
    assert (first["cannot add"], other["cannot add"]) == (5, "no such image")
    assert {of_rank["steps so far"] - rank // 2 for rank, of_rank in enumerate(found)} == {first["steps so far"]}
