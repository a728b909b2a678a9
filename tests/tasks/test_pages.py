"""Pages say what their stage made, and show what a model said as text."""

from pathlib import Path

import pytest

from rl_core.run_directory import RunDirectory
from tasks.manifests import Output, StageManifest
from tasks.pages import _said, links_page, markdown_table, stage_page


def manifest(stage: str, result: dict, **more: object) -> StageManifest:
    return StageManifest(
        stage=stage,
        digest="abc",
        outputs={"a": Output(sha256="0", size=1_500_000)},
        result=result,
        seconds=61.0,
        finished_at="2026-01-01T00:00:00+00:00",
        **more,
    )


def test_a_stage_is_its_facts() -> None:
    page = stage_page(manifest("merge", {"step": 6, "proof": {"largest": 1.25e-7}, "text": "a\nb"}))
    for line in (
        "| wall time | 1 min 01 s |",
        "| files | 1 (1.5 MB) |",
        "| step | 6 |",
        "| proof.largest | 1.25e-07 |",
    ):
        assert line in page
    assert "made by this run" in page and "a\nb" not in page


def test_a_stage_of_another_run_says_so() -> None:
    assert "| origin | taken over from `other` |" in stage_page(manifest("merge", {}, reused_from="other"))


def test_an_evaluation_is_a_table_of_its_passes() -> None:
    result = {
        "accuracy": 0.5,
        "ci95": [0.4, 0.625],
        "n": 10,
        "truncation_rate": 0.1,
        "parse_failure_rate": None,
        "mean_length": 12.5,
    }
    page = stage_page(manifest("evaluate-base", {"greedy": result, "sampled": result}))
    assert "| greedy | 50.0% | 40.0% to 62.5% | 10 | 10.0% |  | 12.5 |" in page
    assert "| sampled | " in page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", "a\\|b"),
        ("<img src=x onerror=y>", "&lt;img src=x onerror=y>"),
        ("one\ntwo", "one<br>two"),
        ("**5** & [6](x)", "\\*\\*5\\*\\* &amp; \\[6\\](x)"),
    ],
)
def test_what_a_model_said_is_text(text: str, shown: str) -> None:
    assert _said(text) == shown


def test_a_long_text_is_cut() -> None:
    assert _said("x" * 1000) == "x" * 300 + " ..."


def test_a_table_has_a_line_a_row() -> None:
    assert markdown_table(("a", "b"), [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def test_links_name_what_there_is() -> None:
    run = RunDirectory(Path("runs/x"))
    assert "[http://m](http://m)" in links_page(run, mlflow="http://m", resume="sightline run --resume x")
    assert "not shown there" in links_page(run, mlflow=None, resume="sightline run --resume x")
