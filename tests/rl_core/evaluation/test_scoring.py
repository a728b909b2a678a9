"""Saved responses through the real pool."""

import json
from pathlib import Path

from rl_core.evaluation.protocols.registry import protocol_named
from rl_core.evaluation.result import summarise
from rl_core.evaluation.saved_outputs import read_saved_outputs
from rl_core.evaluation.scoring import score_saved_outputs
from rl_core.progress import SilentProgress


def score(tmp_path: Path, name: str, rows: list[dict]) -> list:
    path = tmp_path / "outputs.json"
    path.write_text(json.dumps(rows))
    protocol = protocol_named(name)
    outputs = read_saved_outputs(path, mode=protocol.answering.mode)
    return score_saved_outputs(outputs, protocol, progress=SilentProgress())


def test_a_graders_answers_come_in_the_order_of_the_file(tmp_path: Path) -> None:
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


def test_a_built_in_reward_judges_samples_by_category(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "answer": "48", "problem_type_goal": "angle", "response": ["\\boxed{48}", "\\boxed{47}"]},
        {"id": "b", "answer": "x", "problem_type_goal": "length", "response": ["\\boxed{y}", "none"]},
    ]
    result = summarise(score(tmp_path, "geo3k-easyr1@1", rows))
    assert (result.mode, result.n, result.accuracy, result.parse_failure_rate) == ("sampled", 2, 0.25, 0.25)
    assert result.pass_at == ((1, 0.25), (2, 0.5))
    assert [(row.value, row.accuracy) for row in result.categories] == [("angle", 0.5), ("length", 0.0)]
