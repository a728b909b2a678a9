import sys
import sysconfig
from collections.abc import Iterator

import pytest


@pytest.fixture
def own_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Reward files may be imported in this process: what that adds to it is taken back."""
    known = set(sys.modules)
    libraries = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")})
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setenv("SIGHTLINE_REWARD_FILES", "{}")
    yield
    for name in set(sys.modules) - known:
        file = getattr(sys.modules[name], "__file__", None)
        if file and "." not in name and not file.startswith(libraries):
            del sys.modules[name]
