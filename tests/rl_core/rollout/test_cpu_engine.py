"""With and without the code for a CPU, the engine samples the same tokens with the same log-probs, to the bit."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from rl_core.device import CPU_ENGINE, takes_cpu_code
from tests.rl_core.rollout.engines import Running, assert_same_rollouts, make_requests, training_sampling

WITHOUT = """
import pickle, sys
from pathlib import Path
from tests.rl_core.rollout.engines import *

policy = load_tiny_policy("qwen2_5_vl", Path(sys.argv[1]))
running = Running(policy=policy, engine=start_vllm(policy))
modules = [name for name in sys.modules if name.startswith("rl_core.rollout.cpu")]
assert not modules, modules
for _ in range(2):  # the second load is the one that copies
    running.sync()
Path(sys.argv[2]).write_bytes(pickle.dumps(running.generate(make_requests(policy.prompts(), 8), training_sampling())))
running.engine.close()
"""


@pytest.mark.parametrize("running", ["qwen2_5_vl"], indirect=True)
def test_switched_off_the_engine_samples_the_same(running: Running, tmp_path: Path) -> None:
    """In a process of its own, because layers of vLLM are replaced for good."""
    found = tmp_path / "rollouts"
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT, str(running.policy.folder), str(found)]
    environment = os.environ | {CPU_ENGINE: "0", "PYTHONPATH": "."}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    for _ in range(2):
        running.sync()
    mine = running.generate(make_requests(running.policy.prompts(), 8), training_sampling())
    assert_same_rollouts(mine, pickle.loads(found.read_bytes()))


def test_a_switch_is_0_or_1(monkeypatch: pytest.MonkeyPatch) -> None:
    assert takes_cpu_code(CPU_ENGINE)
    monkeypatch.setenv(CPU_ENGINE, "0")
    assert not takes_cpu_code(CPU_ENGINE)
    monkeypatch.setenv(CPU_ENGINE, "off")
    with pytest.raises(ValueError, match="SIGHTLINE_CPU_ENGINE=off in the environment: set it to 0"):
        takes_cpu_code(CPU_ENGINE)
