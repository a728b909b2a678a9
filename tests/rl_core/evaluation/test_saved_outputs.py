import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rl_core.evaluation.items import write_items
from rl_core.evaluation.protocols.registry import protocol_named
from rl_core.evaluation.result import summarise
from rl_core.evaluation.saved_outputs import SavedOutput, read_saved_outputs, score_saved_outputs
from rl_core.progress import SilentProgress
from tests.rl_core.evaluation.builders import ITEM, make_items

ROWS = [
    {"id": 7, "problem": "How many?", "ground_truth": 3, "response": "three", "level": "easy"},
    {"id": 8, "problem": "Which?", "ground_truth": "B", "response": "B\u2028C", "level": "hard"},
]
EXPECTED = [("7", "How many?", "3", "three", 0, "easy"), ("8", "Which?", "B", "B\u2028C", 0, "hard")]


def facts(output: SavedOutput) -> tuple:
    return (*(getattr(output, name) for name in ("uid", "question", "answer", "response", "sample_index")),)


@pytest.mark.parametrize("kind", ["list.json", "results.json", "lines.jsonl", "table.parquet"])
def test_rows_of_every_format(tmp_path, kind):
    path = tmp_path / kind
    rows = [row | {"ground_truth": str(row["ground_truth"])} for row in ROWS] if kind == "table.parquet" else ROWS
    match kind:
        case "list.json":
            path.write_text(json.dumps(rows))
        case "results.json":
            path.write_text(json.dumps({"accuracy": 50.0, "results": rows}))
        case "lines.jsonl":
            path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", encoding="utf-8")
        case _:
            pq.write_table(pa.Table.from_pylist(rows), path)
    outputs = read_saved_outputs(path, mode="greedy")
    assert [(*facts(output), output.extra["level"]) for output in outputs] == EXPECTED


def test_a_date_of_a_parquet_file_is_a_truth(tmp_path):
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"answer": [date(2026, 11, 25)], "response": ["Today."]}), path)
    (output,) = read_saved_outputs(path, mode="greedy")
    assert output.answer == "2026-11-25"


def test_rows_as_r1v_logs_them(tmp_path):
    """The item stands whole in the place of the question."""
    item = {"image_path": "0.png", "question": "How large is the angle?", "ground_truth": "140°"}
    record = {"question": item, "ground_truth": "140°", "model_output": "It is 140.", "extracted_answer": "140"}
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"accuracy": 0.0, "results": [record]}))
    (output,) = read_saved_outputs(path, mode="greedy")
    assert facts(output) == ("row-000000", "How large is the angle?", "140°", "It is 140.", 0)


def test_our_own_items_give_the_rows_of_one_mode_with_their_categories(tmp_path):
    path = tmp_path / "items.parquet"
    items = [*make_items("+-", categories={"shape": ("line",)}), replace(ITEM, mode="sampled", response="other")]
    write_items(path, items)
    outputs = read_saved_outputs(path, mode="greedy")
    assert [output.uid for output in outputs] == ["p0", "p1"]
    assert outputs[0].extra["shape"] == ["line"]
    assert [output.response for output in read_saved_outputs(path, mode="sampled")] == ["other"]


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("a.csv", "", r"read from \.json, \.jsonl, \.parquet"),
        ("a.json", "{", "cannot be read"),
        ("a.json", "[1]", "neither a list of rows"),
        ("a.json", '{"rows": []}', "neither a list of rows"),
        ("a.json", "[]", "holds no greedy response"),
        ("a.parquet", "not one", "cannot be read"),
        (
            "a.json",
            '[{"answer": "1", "response": "1"}, {"answer": "1", "text": "1"}]',
            "row 1: no response.*answer, text",
        ),
        ("a.json", '[{"response": "1"}]', "row 0: no truth"),
        ("a.json", '[{"answer": "1", "response": [1]}]', "row 0: the response is int"),
    ],
)
def test_outputs_that_cannot_be_scored_are_named(tmp_path, name, text, named):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=named):
        read_saved_outputs(path, mode="greedy")


def score(tmp_path: Path, name: str, rows: list[dict]) -> list:
    path = tmp_path / "outputs.json"
    path.write_text(json.dumps(rows))
    protocol = protocol_named(name)
    outputs = read_saved_outputs(path, mode=protocol.answering.mode)
    return score_saved_outputs(outputs, protocol, progress=SilentProgress())


def test_a_graders_answers_come_in_the_order_of_the_file(tmp_path):
    rows = [
        {"ground_truth": "140°", "model_output": "<think>It is 140.</think> <answer>140</answer>"},
        {"ground_truth": "3cm", "model_output": "nobody knows"},
        {"ground_truth": "6cm", "model_output": "so 6.0 it is"},
    ]
    items = score(tmp_path, "geoqa-r1v@1", rows)
    assert [(item.is_right, item.parsed, item.parse_failed) for item in items] == [
        (True, "140", False),
        (False, None, True),
        (True, "6.00000000000000", False),
    ]
    assert {(item.mode, item.length, item.finish_reason, item.error) for item in items} == {
        ("greedy", None, None, None)
    }


def test_a_built_in_reward_judges_samples_by_category(tmp_path):
    rows = [
        {"id": "a", "answer": "48", "problem_type_goal": "angle", "response": ["\\boxed{48}", "\\boxed{47}"]},
        {"id": "b", "answer": "x", "problem_type_goal": "length", "response": ["\\boxed{y}", "none"]},
    ]
    result = summarise(score(tmp_path, "geo3k-easyr1@1", rows))
    assert (result.mode, result.n, result.accuracy, result.parse_failure_rate) == ("sampled", 2, 0.25, 0.25)
    assert result.pass_at == ((1, 0.25), (2, 0.5))
    assert [(row.value, row.accuracy) for row in result.categories] == [("angle", 0.5), ("length", 0.0)]
