"""A user's reward file runs in the scoring processes and nowhere else, whatever is asked of it."""

import json
import os
from pathlib import Path

import numpy as np
import psutil
import pytest

from rl_core.config.reward import RewardConfig
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.trial import try_on_ground_truth
from rl_core.types import Prompt
from tests.rl_core.rewards.samples import make_sample

TELLING = """
import json, os
with open({log!r}, "a") as file:
    file.write(json.dumps(os.getpid()) + "\\n")
def judge(sample): return 1.0
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "imports.jsonl"


@pytest.fixture
def config(tmp_path: Path, log: Path) -> RewardConfig:
    """A reward whose file tells which process imports it."""
    path = tmp_path / "telling.py"
    path.write_text(TELLING.format(log=str(log)))
    return RewardConfig(function=f"{path}:judge")


def imports(log: Path) -> list[int]:
    """The processes that imported the file."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_a_file_is_imported_by_scoring_processes_alone(config: RewardConfig, log: Path) -> None:
    nothing = np.zeros(0, np.int32)
    prompt = Prompt(
        uid="1", data_source="s", question="?", text="?", answer="3", token_ids=nothing, engine_token_ids=nothing
    )
    trial = try_on_ground_truth(config, [prompt], target_template=None, accuracy_key="overall")
    assert not trial.problems
    with RewardPool(config) as pool:
        assert pool.score_all([make_sample("a", "a")])[0].overall == 1.0
        ours = {child.pid for child in psutil.Process().children()}
    found = set(imports(log))
    assert found
    assert not found & ({os.getpid()} | ours)
