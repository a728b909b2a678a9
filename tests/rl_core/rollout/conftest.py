"""One running vLLM a family, shared by the tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rl_core.rollout.engines import FAMILIES, Running, build_folders, load_tiny_policy, start_vllm


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build_folders(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module", params=FAMILIES)
def running(request: pytest.FixtureRequest, tiny_folders: dict[str, Path]) -> Iterator[Running]:
    policy = load_tiny_policy(request.param, tiny_folders[request.param])
    engine = start_vllm(policy)
    yield Running(policy=policy, engine=engine)
    engine.close()


@pytest.fixture
def synced(running: Running) -> Running:
    """The engine with the policy's own weights, whatever an earlier test loaded."""
    running.sync()
    return running
