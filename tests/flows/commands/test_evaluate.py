"""`sightline evaluate` by protocols: what a person sees and what is written."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from flows.cli import app
from flows.commands.protocols import ProtocolRequest, config_to_ask
from rl_core.config.run import RunConfig

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
        (("config.yaml", "--reward", "math"), "--reward has no effect with a CONFIG"),
        (("rows.jsonl", "--model", "a/b", "--items", "x=y"), "--items has no effect with a CONFIG or ROWS"),
        (("config.yaml", "--model", "a/b", "--media-dir", "m"), "--media-dir has no effect with a CONFIG"),
        (("config.yaml", "--model", "a/b"), "no config file config.yaml"),
        (("rows.jsonl", "--model", "a/b"), "there is no file or folder rows.jsonl"),
        (("--model", "a/b", "--protocol", "geo3k-easyr1@1", "--reward", "math"), "--reward has no effect with a prot"),
        (("config.yaml", "--out", "there"), "--out has no effect with a CONFIG"),
        (
            ("--outputs", "none.json", "--protocol", "geo3k-easyr1@1", "--seed", "2"),
            "--seed has no effect with --outputs",
        ),
        (("--model", "a/b", "--protocol", "geo3k-easyr1@1", "--set", "seed=2"), "--set has no effect with a protocol"),
        (("--outputs", "none.json", "--protocol", "geo3k@1"), "did you mean `geo3k-easyr1@1"),
        (("--outputs", "none.json", "--protocol", "geoqa-r1v@1"), "none.json cannot be read"),
    ],
)
def test_a_missing_argument_is_named(arguments: tuple[str, ...], named: str) -> None:
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


def asked_of(target: str, *overrides: str, **given: Any) -> RunConfig:
    others: dict[str, Any] = {"reward": None, "media_dir": None, "model": "a/b", "folder": Path(), **given}
    return config_to_ask(Path(target), overrides, Console(), **others)


SUMS = [{"query": f"What is {number} plus 1?", "answer": f"{number + 1}"} for number in range(12)]


@pytest.mark.parametrize(
    ("reward", "wanted"), [(None, "in \\boxed{}"), ("count", "inside <answer>"), ("own.py:grade", "{{ content }}")]
)
def test_rows_are_asked_as_init_would_ask_them(
    capsys: pytest.CaptureFixture[str], reward: str | None, wanted: str
) -> None:
    Path("own.py").write_text(
        "def grade(sample):\n    return {'overall': float(sample.ground_truth in sample.response)}\n"
    )
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in SUMS))
    key = "evaluation.accuracy_key=" + ("overall" if reward == "own.py:grade" else "accuracy")
    config = asked_of("rows.jsonl", "evaluation.limit=5", key, reward=reward)
    assert (config.reward.function, config.evaluation.limit) == (reward or "math", 5)
    assert config.data.validation.columns.prompt_key == "query"
    assert wanted in Path(config.data.prompt_template).read_text()
    assert "question 'query'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("reward", "named"),
    [
        ("maths", "'maths' is no built-in reward; did you mean `math`"),
        ("own.py:f", "there is no file"),
        ("format", "acc"),
    ],
)
def test_a_reward_that_cannot_grade_the_rows_is_named_before_a_model_is_loaded(reward: str, named: str) -> None:
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in SUMS))
    with pytest.raises(ValueError, match=named):
        asked_of("rows.jsonl", reward=reward)


def test_a_config_is_asked_with_its_own_reward_or_another_one() -> None:
    Path("prompt.jinja").write_text("{{ content }} Count.")
    Path("config.yaml").write_text(
        "experiment: own\n"
        "data:\n"
        "  train: {type: counting, size: 4, scene_seed: 1}\n"
        "  validation: {type: counting, size: 4, scene_seed: 2}\n"
        "  prompt_template: prompt.jinja\n"
        "model: {source: {type: tiny, family: qwen2_5_vl}}\n"
        "reward: {mixture: [{function: count}, {function: format}]}\n"
    )
    own = asked_of("config.yaml", "evaluation.n=3")
    assert [term.function for term in own.reward.terms] == ["count", "format"] and own.evaluation.n == 3
    other = asked_of("config.yaml", "reward.kwargs={}", reward="r1v")
    assert (other.reward.function, other.reward.mixture) == ("r1v", ())
    (greedy, sampled) = ProtocolRequest(config=own).resolved()
    assert ProtocolRequest(config=own).source_of(greedy) == own.data.validation
    assert greedy.prompt == sampled.prompt == "{{ content }} Count."
