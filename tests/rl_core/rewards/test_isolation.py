"""A user's reward file runs in the scoring processes and nowhere else, whatever is asked of it."""

import os
import resource

import psutil

from rl_core.config.reward import RewardConfig
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.trial import try_on_ground_truth
from rl_core.types import Score
from tests.rl_core.builders import make_prompt
from tests.rl_core.rewards.samples import make_sample, own

MANY_FILES = 1100
"""More than `select` can wait for."""

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


def test_a_run_with_many_open_files_scores(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2 * MANY_FILES, hard), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(MANY_FILES)]
    try:
        with RewardPool(RewardConfig(function=own(tmp_path, "def score(sample): return 1.0"))) as pool:
            scores = pool.score_all([make_sample("a", "a")])
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert scores == [Score(components={"overall": 1.0})]
