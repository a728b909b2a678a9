"""One running vLLM a family, shared by the tests of all modules of the folder."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.rl_core.rollout.engines import Running, build_folders, load_tiny_policy, start_vllm
from tests.shared_engines import ended_with_the_folder


@pytest.fixture(scope="session")
def tiny_folders(tmp_path_factory) -> dict[str, Path]:
    return build_folders(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session", params=("qwen2_5_vl", "internvl", "llama"))
def running(request, tiny_folders) -> Iterator[Running]:
    """An engine with patches of ours, one with images by its own processor, one with text alone; the others have their
    certificate. pytest runs the tests of a family one after the other, whatever their modules."""
    policy = load_tiny_policy(request.param, tiny_folders[request.param])
    engine = start_vllm(policy)
    with ExitStack() as once:
        once.callback(engine.close)
        ended_with_the_folder(once.close)
        yield Running(policy=policy, engine=engine)


@pytest.fixture
def synced(running) -> Running:
    """The engine with the policy's own weights, whatever an earlier test loaded."""
    running.sync()
    return running
