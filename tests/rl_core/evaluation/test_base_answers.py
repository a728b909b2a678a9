"""Answers are taken again only where they are the same ones, and all have a score."""

from dataclasses import replace

import pytest

from rl_core.evaluation.base_answers import note_answers, noted_answers
from rl_core.evaluation.items import write_items
from tests.rl_core.evaluation.builders import make_items


@pytest.fixture
def validation(tmp_path):
    path = tmp_path / "step-000000.parquet"
    write_items(path, make_items("+-+"))
    note_answers(path, "key")
    return path


def test_answers_that_depend_on_the_same_are_known(validation):
    items = make_items("+-+")
    assert noted_answers(validation, "key") == {items[0].mode: items}
    assert noted_answers(validation, "another reward, model or software") == {}


def test_an_answer_without_a_score_is_asked_for_again(validation):
    items = make_items("+-+")
    write_items(validation, [*items[:2], replace(items[2], is_right=None, components={}, error="the judge is away")])
    note_answers(validation, "key")
    assert noted_answers(validation, "key") == {}


@pytest.mark.parametrize("damage", ["another file", "no file", "no note", "a torn note"])
def test_damaged_answers_are_asked_for_again(validation, damage):
    note = validation.with_suffix(".json")
    match damage:
        case "another file":
            write_items(validation, make_items("---"))
        case "no file":
            validation.unlink()
        case "no note":
            note.unlink()
        case "a torn note":
            note.write_bytes(note.read_bytes()[:9])
    assert noted_answers(validation, "key") == {}
