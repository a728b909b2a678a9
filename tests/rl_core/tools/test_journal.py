"""What a repeated step does not ask again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.config.data import DataConfig
from rl_core.config.tools import ToolsConfig
from rl_core.tools.journal import Journal
from rl_core.tools.messages import ToolResult
from rl_core.tools.order import ToolOrder

PARTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9) | st.binary(max_size=9), max_size=3)
ORDER = ToolOrder.of(
    (),
    ToolsConfig(use=("calculator",)),
    DataConfig.model_validate(
        {name: {"type": "counting", "size": 8, "scene_seed": 1} for name in ("train", "validation")}
    ),
)
RESULTS = st.builds(ToolResult, PARTS, st.none() | st.text(st.characters(exclude_categories=["Cs"])), st.none())


@given(results=st.lists(RESULTS, max_size=5), cut=st.integers(0, 400), more=RESULTS)
@settings(max_examples=60, deadline=None)
def test_a_kill_loses_the_answer_that_was_being_written_alone(
    tmp_path_factory: object, results: list[ToolResult], cut: int, more: ToolResult
) -> None:
    folder = tmp_path_factory.mktemp("calls") / "calls"  # type: ignore[attr-defined]
    written = Journal(folder, needed_from=lambda: 0)
    assert written.find(2, "0") is None
    for call, result in enumerate(results):
        written.add(2, str(call), result.words)
    file = folder / "000002.jsonl"
    ends = [0]
    if results:
        content = file.read_bytes()
        ends += [place + 1 for place, byte in enumerate(content) if byte == 10]
        file.write_bytes(content[:cut])
    again = Journal(folder, needed_from=lambda: 0)
    assert again.find(2, "more") is None
    found = [_result(again.find(2, str(call))) for call in range(len(results))]
    whole = sum(end <= cut for end in ends[1:])
    assert found == [*results[:whole], *[None] * (len(results) - whole)]
    again.add(2, "more", more.words)
    assert _result(Journal(folder, needed_from=lambda: 0).find(2, "more")) == more


def test_failures_are_kept_until_they_stop_the_run(tmp_path: Path) -> None:
    kept = Journal(tmp_path / "calls", needed_from=lambda: 0)
    good, bad = ToolResult(["3"], None, None), ToolResult([], None, "no server")
    for call, result in (("a", good), ("b", bad), ("c", good)):
        assert kept.find(1, call) is None
        kept.add(1, call, result.words)
    again = Journal(tmp_path / "calls", needed_from=lambda: 0)
    assert _result(again.find(1, "b")) == bad
    again.forget_failures()
    for journal in (again, Journal(tmp_path / "calls", needed_from=lambda: 0)):
        assert [_result(journal.find(1, call)) for call in "abc"] == [good, None, good]


def _result(words: Sequence[Any] | None) -> ToolResult | None:
    return None if words is None else ORDER.result(*words)


def test_a_run_goes_on_with_the_servers_it_began_with(tmp_path: Path) -> None:
    kept = Journal(tmp_path / "calls", needed_from=lambda: 0)
    kept.check_servers({"files": [{"name": "read"}], "sums": []})
    assert kept.find(0, "a") is None
    again = Journal(tmp_path / "calls", needed_from=lambda: 0)
    again.check_servers({"sums": [], "files": [{"name": "read"}]})
    with pytest.raises(ValueError, match=r"tools\.mcp: files offers other tools"):
        again.check_servers({"files": [{"name": "write"}], "sums": []})


def test_what_no_step_repeats_is_removed(tmp_path: Path) -> None:
    needed = [0]
    kept = Journal(tmp_path / "calls", needed_from=lambda: needed[0])
    answer = ToolResult(["3"], None, None)
    for version in range(5):
        assert kept.find(version, "a") is None
        kept.add(version, "a", answer.words)
        needed[0] = max(0, version - 1)
    assert sorted(file.name for file in (tmp_path / "calls").iterdir()) == [f"{n:06d}.jsonl" for n in (2, 3, 4)]
    assert Journal(tmp_path / "calls", needed_from=lambda: 3).find(3, "a") == [[["text", "3"]], None, None]
    assert kept.find(0, "a") is None, "an evaluation of the base model comes after the training"
