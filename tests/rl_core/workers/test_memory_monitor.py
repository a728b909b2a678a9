"""Ray ends a worker when its machine has too little memory left; the error says so, and at which threshold."""

from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.progress import SilentProgress
from rl_core.workers.folders import WorkerFolders
from rl_core.workers.protocol import WorkerDied
from rl_core.workers.ray_group import RayWorkerGroup
from tests.machines import joined_from_here

WHY = r"Ray's memory monitor ended it.*GB used .* exceeded threshold of \d+B \(0\.1% of .*Top 10 memory users: PID"
SMALL = Path(__file__).parents[2] / "e2e" / "configs" / "small.yaml"

pytestmark = pytest.mark.slow


def test_a_worker_that_is_ended_for_lack_of_memory_is_explained_with_the_threshold(tmp_path: Path) -> None:
    folders = WorkerFolders(model=tmp_path, base=tmp_path, data=tmp_path, images_per_prompt=1)
    monitor = {"RAY_memory_usage_threshold": "0.001", "RAY_memory_monitor_refresh_ms": "50"}
    with joined_from_here(**monitor) as machines:
        config = load_config(SMALL, [f"cluster={{address: '{machines.address}', device: cpu}}"])
        with pytest.raises(WorkerDied, match=WHY):
            RayWorkerGroup(config, folders, total_optimizer_steps=1, progress=SilentProgress())
        assert machines.is_there
