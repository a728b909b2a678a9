"""What drawn configurations share."""

from collections.abc import Iterator

import pytest
from huggingface_hub import constants

from rl_core.loop import session
from rl_core.rewards import trial
from rl_core.workers import local_worker
from tests.drawn.rows import write_workplace
from tests.drawn.running import Workshop


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    """In the folder that the configurations' paths start from."""
    folder = tmp_path_factory.mktemp("drawn")
    write_workplace(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shop = Workshop(folder)
        patch.setattr(constants, "HF_HUB_OFFLINE", True)  # a name that might be on the hub is not looked up
        patch.setattr(local_worker, "VllmEngine", shop.lend_engine)
        patch.setattr(session, "RewardPool", shop.lend_pool)
        patch.setattr(trial, "RewardPool", shop.lend_pool)
        yield shop
        shop.close()
