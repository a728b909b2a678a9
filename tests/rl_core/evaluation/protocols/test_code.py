import sys
from pathlib import Path

import pytest

from rl_core.evaluation.protocols.code import code_digest

PLAIN = "def half(x):\n    return x / 2\n"


@pytest.fixture
def digest_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(tmp_path)

    def digest(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        found = code_digest((name,))
        assert name not in sys.modules, "it is read, not imported"
        return found

    return digest


def test_words_and_layout_do_not_count_and_code_does(digest_of) -> None:
    worded = '"""A module."""\n\n\ndef half( x ):  # a comment\n    """Half."""\n    return x/2\n'
    assert digest_of("scorer_a", PLAIN) == digest_of("scorer_b", worded)
    assert digest_of("scorer_c", PLAIN.replace("2", "3")) != digest_of("scorer_d", PLAIN)
