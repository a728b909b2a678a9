"""A session ends what it started, whatever happens on the way."""

import pytest

from rl_core.loop.session import Session
from rl_core.progress import SilentProgress
from rl_core.run_directory import RunDirectory
from rl_core.stop import StopRequest


class Owner:
    """Something that a session ends; a lost device may refuse to."""

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses
        self.is_ended = False

    def close(self) -> None:
        self.is_ended = True
        if self.refuses:
            raise RuntimeError("CUDA error: device lost")

    def __exit__(self, *_: object) -> None:
        self.close()


def test_workers_that_cannot_be_ended_keep_nothing_else_alive(config, tmp_path):
    """Another try must not go on with the loop of the failed one, whose loader has moved on."""
    session = Session(config, RunDirectory(tmp_path), progress=SilentProgress(), stop=StopRequest())
    workers, rewards = Owner(refuses=True), Owner(refuses=False)
    session._workers, session._rewards, session._loop = workers, rewards, object()
    with pytest.raises(RuntimeError, match="device lost"):
        session.close()
    assert workers.is_ended and rewards.is_ended
    assert (session._workers, session._rewards, session._loop) == (None, None, None)
