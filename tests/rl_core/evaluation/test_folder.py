from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rl_core.evaluation.folder import read_evaluation, read_results, write_evaluation
from rl_core.evaluation.result import summarise
from tests.rl_core.evaluation.builders import ITEM, make_items

EVALUATION = {
    "greedy": make_items("+-+"),
    "sampled": [replace(ITEM, mode="sampled", sample_index=index) for index in range(2)],
}


def test_an_evaluation_comes_back_as_it_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "evaluations" / "base"
    results = write_evaluation(folder, EVALUATION)
    assert results == read_results(folder) == {mode: summarise(items) for mode, items in EVALUATION.items()}
    assert read_evaluation(folder) == EVALUATION
    assert sorted(path.name for path in folder.iterdir()) == ["items.parquet", "result.json"]


def test_a_refused_evaluation_leaves_the_old_one(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "base", EVALUATION)
    with pytest.raises(ValueError, match="one mode"):
        write_evaluation(tmp_path / "base", {"greedy": []})
    assert read_evaluation(tmp_path / "base") == EVALUATION


def test_an_evaluation_killed_at_any_file_call_is_there_whole_or_not_at_all(
    tmp_path: Path, killed_before_each_call: Callable[..., int]
) -> None:
    folder = tmp_path / "base"

    def check() -> None:
        if folder.exists():
            assert read_evaluation(folder) == EVALUATION
            assert read_results(folder).keys() == EVALUATION.keys()

    def forget() -> None:
        if folder.exists():
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()

    assert killed_before_each_call(forget, lambda: write_evaluation(folder, EVALUATION), check) > 3
