"""What a run left behind, in a form that can be compared with what another one left."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import altered_output, read_manifests


def hashes(folder: Path, patterns: Sequence[str]) -> dict[str, str]:
    """Relative path -> SHA-256 of every file below `folder` that a pattern finds; each finds one at least."""
    found = {pattern: [path for path in folder.glob(pattern) if path.is_file()] for pattern in patterns}
    assert all(found.values()), f"{folder} has no {[pattern for pattern in patterns if not found[pattern]]}"
    files = sorted({path for paths in found.values() for path in paths})
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def differences(expected: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Names of results that are missing, new or different."""
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))


def is_whole(run: RunDirectory) -> bool:
    """Whether each finished stage has its files, but for checkpoints that retention has removed."""
    for manifest in read_manifests(run):
        files = {path: file for path, file in manifest.outputs.items() if not path.startswith("checkpoints/")}
        if altered_output(run.root, files) is not None:
            return False
    return True
