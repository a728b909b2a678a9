"""`sightline evaluate` by protocols: what a person sees and what is written."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app

ROWS = [
    {"id": index, "ground_truth": truth, "model_output": f"<answer>{given}</answer>"}
    for index, (truth, given) in enumerate([(3, 3), (4, 4), (5, 6), (6, "six")])
]


@pytest.fixture(autouse=True)
def _somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def evaluate(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["evaluate", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_saved_outputs_are_scored_shown_and_written() -> None:
    Path("outputs.json").write_text(json.dumps({"results": ROWS}))
    text = evaluate("--outputs", "outputs.json", "--protocol", "superclevr-r1v@1")
    for part in ("50.00%", "2/4 responses right", "items: 4, not the published 200", "25.0%", "protocol digest"):
        assert part in text, part
    verdict = json.loads(Path("evaluations/outputs/superclevr-r1v@1/verdict.json").read_text())
    assert verdict["result"]["accuracy"] == 0.5
    assert verdict["subject"]["outputs"] == "outputs.json"


def test_later_outputs_are_compared_with_earlier_ones() -> None:
    Path("old.json").write_text(json.dumps(ROWS))
    Path("new.json").write_text(json.dumps([row | {"model_output": "<answer>5</answer>"} for row in ROWS]))
    evaluate("--outputs", "old.json", "--protocol", "superclevr-r1v@1")
    text = evaluate("--outputs", "new.json", "--protocol", "superclevr-r1v@1", "--against", "evaluations/old")
    assert "50.0% -> 25.0%" in text
    assert "1 items gained, 2 lost" in text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "give a CONFIG, or saved responses"),
        (("--outputs", "none.json"), "name a protocol"),
        (("--outputs", "none.json", "--protocol", "geo3k@1"), "did you mean geo3k-easyr1@1"),
        (("--outputs", "none.json", "--protocol", "geoqa-r1v@1"), "none.json cannot be read"),
    ],
)
def test_what_is_missing_is_named(arguments: tuple[str, ...], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        evaluate(*arguments)
