"""`sightline evaluate` by protocols: what a person sees and what is written."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.commands.protocols import ProtocolRequest

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
    result = json.loads(Path("evaluations/outputs/superclevr-r1v@1/verdict.json").read_text())
    assert result["result"]["accuracy"] == 0.5
    assert result["subject"]["outputs"] == "outputs.json"


def test_later_outputs_are_compared_with_earlier_ones() -> None:
    Path("old.json").write_text(json.dumps(ROWS))
    Path("new.json").write_text(json.dumps([row | {"model_output": "<answer>5</answer>"} for row in ROWS]))
    evaluate("--outputs", "old.json", "--protocol", "superclevr-r1v@1")
    text = evaluate("--outputs", "new.json", "--protocol", "superclevr-r1v@1", "--against", "evaluations/old")
    assert "50.0% -> 25.0%" in text
    assert "1 items gained, 2 lost" in text


def test_outputs_of_one_name_in_two_folders_have_results_of_their_own() -> None:
    for folder, answer in (("old", 3), ("new", 5)):
        Path(folder).mkdir()
        rows = [row | {"model_output": f"<answer>{answer}</answer>"} for row in ROWS]
        Path(folder, "gen.json").write_text(json.dumps(rows))
        evaluate("--outputs", f"{folder}/gen.json", "--protocol", "superclevr-r1v@1")
    assert sorted(path.name for path in Path("evaluations").iterdir()) == ["new-gen", "old-gen"]


def test_results_that_would_take_the_place_of_the_earlier_ones_are_refused_first() -> None:
    Path("gen.json").write_text(json.dumps(ROWS))
    evaluate("--outputs", "gen.json", "--protocol", "superclevr-r1v@1")
    before = Path("evaluations/gen/superclevr-r1v@1/verdict.json").read_bytes()
    Path("gen.json").write_text(json.dumps(ROWS[:1]))
    with pytest.raises(ValueError, match="the new results would replace it; give --out FOLDER"):
        evaluate("--outputs", "gen.json", "--protocol", "superclevr-r1v@1", "--against", "evaluations/gen")
    assert Path("evaluations/gen/superclevr-r1v@1/verdict.json").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "give a CONFIG; or --protocol"),
        (("--protocol", "geoqa-r1v@1"), "measures one thing: --model NAME, or --outputs FILE"),
        (("config.yaml", "--outputs", "none.json"), "measures one thing"),
        (("--model", "a/b", "--protocol", "geoqa-r1v@1"), "are files: give them as --items geoqa-r1v@1=FILE"),
        (("--model", "a/b", "--protocol", "geoqa-r1v@1", "--samples", "4"), "answers greedily"),
        (("--model", "a/b", "--protocol", "math12k-easyr1@1", "--items", "x=y"), "--items x=...: no such protocol"),
        (("--outputs", "none.json"), "name a protocol"),
        (("config.yaml", "--limit", "10"), "--limit has no effect with a CONFIG"),
        (("config.yaml", "--out", "there"), "--out has no effect with a CONFIG"),
        (
            ("--outputs", "none.json", "--protocol", "geo3k-easyr1@1", "--seed", "2"),
            "--seed has no effect with --outputs",
        ),
        (("--model", "a/b", "--protocol", "geo3k-easyr1@1", "--set", "seed=2"), "--set has no effect with a protocol"),
        (("--outputs", "none.json", "--protocol", "geo3k@1"), "did you mean geo3k-easyr1@1"),
        (("--outputs", "none.json", "--protocol", "geoqa-r1v@1"), "none.json cannot be read"),
    ],
)
def test_what_is_missing_is_named(arguments: tuple[str, ...], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        evaluate(*arguments)


def test_items_come_from_the_file_given_or_from_the_hub() -> None:
    request = ProtocolRequest(
        protocols=("geoqa-r1v@1", "geo3k-easyr1@1"),
        items=("geoqa-r1v@1=test.jsonl",),
        media_dir=Path("images"),
        limit=5,
    )
    file, hub = (request.source_of(protocol) for protocol in request.resolved())
    assert (file.type, file.path, file.media_dir, file.limit) == ("local", "test.jsonl", "images", 5)
    assert file.columns.answer_key == "ground_truth"
    assert (hub.type, hub.name, hub.limit) == ("hub", "hiyouga/geometry3k@test", 5)


def test_the_prompt_of_a_file_and_more_samples_change_the_protocol() -> None:
    Path("published.jinja").write_text("{{ content }} As published.")
    request = ProtocolRequest(protocols=("geo3k-easyr1@1",), prompt=Path("published.jinja"), samples=8)
    (protocol,) = request.resolved()
    assert protocol.prompt == "{{ content }} As published."
    assert protocol.answering.n == 8
