"""A user's reward file runs in the scoring processes and nowhere else, whatever is asked of it."""

import os

import psutil

from rl_core.config.reward import RewardConfig
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.trial import try_on_ground_truth
from tests.rl_core.builders import make_prompt
from tests.rl_core.rewards.samples import make_sample, own

TELLING = """
import os
with open({log!r}, "a") as file:
    file.write(f"{{os.getpid()}}\\n")
def score(sample): return 1.0
"""


def test_a_file_is_imported_by_scoring_processes_alone(tmp_path):
    log = tmp_path / "imports"
    config = RewardConfig(function=own(tmp_path, TELLING.format(log=str(log))))
    assert not try_on_ground_truth(config, [make_prompt()], target_template=None, accuracy_key="overall").problems
    with RewardPool(config) as pool:
        assert pool.score_all([make_sample("a", "a")])[0].overall == 1.0
        ours = {child.pid for child in psutil.Process().children()}
    found = {int(line) for line in log.read_text().split()}
    assert found and not found & ({os.getpid()} | ours)
