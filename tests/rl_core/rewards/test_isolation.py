"""A user's reward file runs in the scoring processes and nowhere else, whatever is asked of it."""

import ast
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

SOURCES = Path(__file__).parents[3]
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


def test_nothing_else_imports_a_file_by_its_path() -> None:
    """`import_module` takes built-in rewards by their dotted names; a path can be run by these calls only."""
    running = {"spec_from_file_location", "exec_module", "run_path", "exec", "eval", "execfile", "load_module"}
    found = {
        path.relative_to(SOURCES).as_posix()
        for room in ("rl_core", "tasks", "flows", "sightline_tools")
        for path in (SOURCES / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _name(node.func) in running
    }
    assert found == {"rl_core/user_code/modules.py"}


def _name(function: ast.expr) -> str | None:
    match function:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner != "model":
            return name  # model.eval() is torch's
        case ast.Attribute(attr=name) if name != "eval":
            return name
    return None
