from pathlib import Path

from rl_core.rewards.reading import read_source

TEXT = """
from typing import Any as Anything
KIND: str = "batch"
UNSET: int
COMPUTED = "ba" + "tch"
first = second = 3
async def later(sample, *, weight=1.0): ...
def now(sample, /, other): ...
if KIND:
    def inner(sample): ...
"""


def test_the_top_level_of_a_file_is_read_as_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(TEXT)
    source = read_source(path)
    assert source.names == {
        *("Anything", "KIND", "UNSET", "COMPUTED", "first", "second", "later", "now", "inner"),
    }
    assert source.constants == {"KIND": "batch", "first": 3, "second": 3}
    assert (source.is_async("later"), source.is_async("now"), source.is_async("first")) == (True, False, False)
    assert source.parameters("later") == ["sample", "weight"]
    assert source.parameters("now") == ["sample", "other"]
    assert source.parameters("first") == []
    assert source.may_define("inner")
    assert not source.may_define("sample")


def test_after_a_star_import_any_name_may_be_there(tmp_path: Path) -> None:
    path = tmp_path / "stars.py"
    path.write_text("from somewhere import *\n")
    assert read_source(path).may_define("score")
