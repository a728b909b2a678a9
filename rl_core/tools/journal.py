"""What a user's tools have answered in the steps that may be repeated: a repeated step asks none of them again."""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from rl_core.files import atomic_write_text
from rl_core.tools.messages import Answered
from rl_core.tools.order import ToolOrder

_SERVERS = "servers.json"

Kept = TypeVar("Kept", bound=Answered)


class Journal:
    """A file for each version of the weights, in `folder`, with a line for each call that was answered, or has
    failed. Thread-safe."""

    def __init__(self, folder: Path, *, needed_from: Callable[[], int]) -> None:
        """Steps that the version `needed_from()` has sampled may be repeated, and none of earlier ones."""
        self._folder = folder
        self._needed_from = needed_from
        self._known: dict[int, dict[str, Sequence[Any]]] = {}
        self._lock = Lock()

    def find(self, version: int, call: str) -> Sequence[Any] | None:
        """The answer to a call, by its digest, of what these weights have sampled: the words of its result."""
        with self._lock:
            if version not in self._known:
                self._open(version)
            return self._known[version].get(call)

    def add(self, version: int, call: str, words: Sequence[Any]) -> None:
        """Write the answer to a call that was not found. A kill after this loses nothing. Raises OSError."""
        with self._lock:
            with self._file(version).open("a", encoding="utf-8") as file:
                file.write(json.dumps([call, *words]) + "\n")
            if version in self._known:  # a call that nobody waits for may be of an older one
                self._known[version][call] = words

    def ask(
        self,
        order: ToolOrder,
        call: str,
        begin: "Callable[[], Future[Kept]]",
        *,
        version: int,
        heard: Callable[[Kept], object],
    ) -> "Future[Kept]":
        """The result of a call: what is known of it, or what `begin` begins, after it was written and `heard`."""
        kept: Future[Kept] = Future()
        if (words := self.find(version, call)) is not None:
            kept.set_result(order.result(*words))
            return kept

        def keep(came: "Future[Kept]") -> None:
            if came.cancelled():
                kept.cancel()
                return
            try:
                result = came.result()
                self.add(version, call, result.words)
                heard(result)
            except Exception as error:  # noqa: BLE001 - the pool cannot go on, or the disk is full: who waits must know
                kept.set_exception(error)
            else:
                kept.set_result(result)

        begin().add_done_callback(keep)
        return kept

    def check_servers(self, listed: Mapping[str, object]) -> None:
        """Keep what MCP servers offer. Raises ValueError where they offered something else when the run began."""
        if not listed:
            return
        file = self._folder / _SERVERS
        now = json.dumps(listed, sort_keys=True)
        if not file.is_file():
            self._folder.mkdir(exist_ok=True)
            atomic_write_text(file, now)
            return
        before = json.loads(file.read_text())
        if changed := sorted(name for name in {*before, *listed} if before.get(name) != listed.get(name)):
            raise ValueError(
                f"tools.mcp: {', '.join(changed)} offers other tools, or describes them otherwise, than when this run "
                "began; have it offer the same, or start a new run"
            )

    def forget_failures(self) -> None:
        """Have the calls that failed made again when the run goes on: what they failed for may be mended then."""
        with self._lock:
            for version, known in self._known.items():
                kept = {call: words for call, words in known.items() if words[-1] is None}
                lines = [json.dumps([call, *words]) + "\n" for call, words in kept.items()]
                atomic_write_text(self._file(version), "".join(lines))
                self._known[version] = kept

    def _open(self, version: int) -> None:
        """Read the answers to what this version has sampled, without the line that a kill has cut, and remove those
        that no step needs any more."""
        self._folder.mkdir(exist_ok=True)
        needed = min(version, self._needed_from())
        for file in self._folder.glob("*.jsonl"):
            if int(file.stem) < needed:
                file.unlink()
        self._known = {version: {}}
        file = self._file(version)
        if not file.is_file():
            return
        whole, _, _ = file.read_bytes().rpartition(b"\n")
        file.write_bytes(whole + b"\n" * bool(whole))
        for line in whole.splitlines():
            call, *words = json.loads(line)
            self._known[version][call] = words

    def _file(self, version: int) -> Path:
        return self._folder / f"{version:06d}.jsonl"
