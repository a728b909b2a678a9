"""Equal runs of the quickstart leave equal files, on a machine whose cores are busy with other work."""

from pathlib import Path

import pytest

from tests.e2e.runs import REPOSITORY, fingerprint, run_arguments, sightline, the_run
from tests.results import differences
from tests.rl_core.busy import busy_cores

QUICKSTART = REPOSITORY / "configs" / "quickstart.yaml"
SHORT = (
    "data.train.size=256",
    "data.validation.size=50",
    "cold_start.steps=5",
    "cold_start.source.size=320",
    "trainer.max_steps=2",
    "reward={function: length, kwargs: {target_length: 2, max_length: 12}}",
    "evaluation.accuracy_key=overall",
)
"""Two whole steps of the quickstart with a model that has hardly learnt to end its responses: nearly all have all their
tokens, in uneven groups."""

LONGER = ("rollout.max_response_length=200", "data.rollout_batch_size=16", "actor.global_batch_size=16")


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("overrides", [(), LONGER], ids=["12 tokens", "200 tokens"])
def test_equal_runs_are_equal_to_the_bit_on_a_busy_machine(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    found = []
    with busy_cores():
        for number in range(4):
            home = tmp_path / str(number)
            home.mkdir()
            sightline(*run_arguments(home, QUICKSTART, *SHORT, *overrides), home=home, timeout=700)
            found.append(fingerprint(the_run(home / "runs")))
    assert all(found)
    assert [differences(found[0], other) for other in found[1:]] == [[], [], []]
