"""What a user's tools have answered in the steps that may be repeated: a repeated step asks none of them again."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from rl_core.tools.order import ToolResult


class Journal:
    """A file for each version of the weights, in `folder`, with a line for each answered call. A call that failed has
    none: when the run goes on, it is made again. Thread-safe."""

    def __init__(self, folder: Path, *, needed_from: Callable[[], int]) -> None:
        """Steps that the version `needed_from()` has sampled may be repeated, and none of earlier ones."""
        self._folder = folder
        self._needed_from = needed_from
        self._known: dict[int, dict[str, ToolResult]] = {}
        self._lock = Lock()

    def find(self, version: int, call: str) -> ToolResult | None:
        """The answer to a call, by its digest, of what these weights have sampled."""
        with self._lock:
            if version not in self._known:
                self._open(version)
            return self._known[version].get(call)

    def add(self, version: int, call: str, result: ToolResult) -> None:
        """Write the answer to a call that was not found. A kill after this loses nothing. Raises OSError."""
        parts = [["text", p] if isinstance(p, str) else ["image", b64encode(p).decode()] for p in result.shown]
        with self._lock:
            with self._file(version).open("a", encoding="utf-8") as file:
                file.write(json.dumps([call, parts, result.mistake]) + "\n")
            self._known.setdefault(version, {})[call] = result

    def _open(self, version: int) -> None:
        """Read the answers to what this version has sampled, without the line that a kill has cut, and remove those
        that no step needs any more."""
        self._folder.mkdir(exist_ok=True)
        needed = min(version, self._needed_from())
        for file in self._folder.iterdir():
            if int(file.stem) < needed:
                file.unlink()
        self._known = {version: {}}
        file = self._file(version)
        if not file.is_file():
            return
        whole, _, _ = file.read_bytes().rpartition(b"\n")
        file.write_bytes(whole + b"\n" * bool(whole))
        for line in whole.splitlines():
            call, parts, mistake = json.loads(line)
            shown = [value if kind == "text" else b64decode(value) for kind, value in parts]
            self._known[version][call] = ToolResult(shown, mistake, None)

    def _file(self, version: int) -> Path:
        return self._folder / f"{version:06d}.jsonl"
