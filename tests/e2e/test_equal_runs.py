"""Equal runs leave equal files, on a machine whose cores are busy with other work."""

from pathlib import Path

import pytest

from tests.e2e.runs import (
    QUICKSTART,
    QUICKSTART_IN_SHORT,
    REAL_MODEL,
    REAL_MODEL_IN_SHORT,
    run_arguments,
    sightline,
    the_run,
)
from tests.results import differences, hashes
from tests.rl_core.busy import busy_cores

SHORT = (*QUICKSTART_IN_SHORT, "data.train.size=256", "trainer.max_steps=2")
RESULTS = ("metrics.jsonl", "rollouts/*.parquet", "validations/*.parquet", "checkpoints/**/*")
LONGER = (*SHORT, "rollout.max_response_length=200", "data.rollout_batch_size=16", "actor.global_batch_size=16")


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("config", "overrides"),
    [
        pytest.param(QUICKSTART, SHORT, id="12 tokens"),
        pytest.param(QUICKSTART, LONGER, id="200 tokens"),
        pytest.param(REAL_MODEL, REAL_MODEL_IN_SHORT, id="a real model"),
    ],
)
def test_equal_runs_are_equal_to_the_bit_on_a_busy_machine(
    tmp_path: Path, config: Path, overrides: tuple[str, ...]
) -> None:
    found = []
    with busy_cores():
        for number in range(4):
            home = tmp_path / str(number)
            home.mkdir()
            sightline("train", *run_arguments(home, config, *overrides)[1:], home=home, timeout=700)
            found.append(hashes(the_run(home / "runs").root, RESULTS))
    assert [differences(found[0], other) for other in found[1:]] == [[], [], []]
