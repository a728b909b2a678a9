"""The upload asks for a private repository and never touches a public one. The hub's own client talks to a server of
ours that answers as the hub does; no network is needed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.servers import answering

PUSH = """
import sys
from pathlib import Path
from rl_core.export.hub import PushFailed, push_to_hub
try:
    print(push_to_hub(Path(sys.argv[1]), "owner/counter"))
except PushFailed as failed:
    sys.exit(str(failed))
"""


class LittleHub:
    """Remembers requests; one model repository, which is private or not."""

    endpoint: str

    def __init__(self) -> None:
        self.requests: list[tuple[str, bytes]] = []
        self.private = True

    def answer(self, path: str, body: bytes) -> tuple[int, object]:
        self.requests.append((path, body))
        if path.endswith("/create"):
            return 200, {"url": f"{self.endpoint}/owner/counter"}
        if "/preupload/" in path:
            files = json.loads(body)["files"]
            return 200, {"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]}
        if "/commit/" in path:
            return 200, {"commitOid": "c" * 40, "commitUrl": f"{self.endpoint}/owner/counter/commit/{'c' * 40}"}
        return 200, {"id": "owner/counter", "private": self.private, "siblings": [], "sha": "c" * 40}


@pytest.fixture
def hub() -> Iterator[LittleHub]:
    hub = LittleHub()
    with answering(hub.answer) as hub.endpoint:
        yield hub


@pytest.fixture
def push(tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    model = tmp_path / "model"
    model.mkdir()
    (model / "README.md").write_text("---\nlibrary_name: transformers\n---\n")
    (model / "config.json").write_text("{}")

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        """In a process of its own, because the client reads HF_ENDPOINT when it is imported."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        command = [sys.executable, "-c", PUSH, str(model)]
        env = clean | {"HF_TOKEN": "hf_test", "HF_HOME": str(tmp_path / "home")} | environment
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)

    return run


def test_a_push_makes_a_private_repository_and_sends_every_file(hub, push):
    done = push(HF_ENDPOINT=hub.endpoint)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{hub.endpoint}/owner/counter/commit/{'c' * 40}"
    bodies = dict(hub.requests)
    assert json.loads(bodies["/api/repos/create"])["visibility"] == "private"
    lines = [json.loads(line) for line in bodies["/api/models/owner/counter/commit/main"].splitlines()]
    assert sorted(line["value"]["path"] for line in lines if line["key"] == "file") == ["README.md", "config.json"]


def test_nothing_is_sent_to_a_repository_that_is_public(hub, push):
    hub.private = False
    done = push(HF_ENDPOINT=hub.endpoint)
    assert "owner/counter is public" in done.stderr
    assert not [path for path, _ in hub.requests if "commit" in path or "preupload" in path]


def test_without_a_network_the_error_says_what_to_do(push):
    done = push(HF_HUB_OFFLINE="1")
    assert done.returncode == 1
    assert "was not uploaded to owner/counter" in done.stderr
    assert "HF_HUB_OFFLINE is not set" in done.stderr
