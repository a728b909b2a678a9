"""Options are recognised in every layout, and never where the answers name none of them."""

from typing import Any

import pytest

from rl_core.data.column_guesses import NamedColumns
from rl_core.data.inspection import inspect_data
from rl_core.sources.options import NAMED_AS
from tests.rl_core.data.samples import local

TEXTS = ["a cat", "a dog", "a cow", "a pig"]


def rows(answer: Any, **columns: Any) -> list[dict[str, Any]]:
    """Four rows whose right options are the first to the last; `answer` is called with the index."""
    return [{"question": f"Picture {index}?", "answer": answer(index), **columns} for index in range(4)]


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ({"choices": TEXTS}, "choices"),
        ({"options": dict(zip("ABCD", TEXTS, strict=True))}, "options"),
        (dict(zip("ABCD", TEXTS, strict=True)), ("A", "B", "C", "D")),
        (
            {f"option_{name}": text for name, text in zip("abcd", TEXTS, strict=True)},
            tuple(f"option_{n}" for n in "abcd"),
        ),
    ],
)
@pytest.mark.parametrize(
    ("answer", "way"),
    [
        (lambda index: index, "index"),
        (lambda index: str(index + 1), "number"),
        (lambda index: TEXTS[index], "text"),
        (lambda index: f"({'ABCD'[index]})", "letter"),
        (lambda index: f"<answer> {'ABCD'[index]} </answer>", "letter"),
    ],
)
def test_every_layout_with_every_kind_of_answer(write_jsonl, columns, key, answer, way):
    found = inspect_data(local(write_jsonl(rows(answer, **columns))))
    assert (found.source.columns.options_key, found.source.columns.answer_as) == (key, way)
    read = list(found.source.open())
    assert [row.answer for row in read] == ["A", "B", "C", "D"]
    assert list(read[0].options.values()) == TEXTS
    assert any(f"is {NAMED_AS[way]} and becomes 'A'" in doubt for doubt in found.doubts)


def test_whole_numbers_count_options_whose_texts_are_numbers(write_jsonl):
    found = inspect_data(local(write_jsonl(rows(lambda index: index, choices=["3", "2", "1", "0"]))))
    assert [row.answer for row in found.source.open()] == ["A", "B", "C", "D"]
    assert any("text would fit too, and give other letters" in doubt for doubt in found.doubts)


def test_columns_that_the_answers_do_not_name_are_not_used(write_jsonl):
    found = inspect_data(local(write_jsonl(rows(lambda index: f"word {index}", options=TEXTS))))
    assert found.source.columns.options_key is None
    assert any(doubt.startswith("not used: 'options' looks like options") for doubt in found.doubts)
    some = [{"question": "?", "answer": "a cat", "options": TEXTS if number else None} for number in range(4)]
    found = inspect_data(local(write_jsonl(some)))
    assert found.source.columns.options_key is None
    assert found.doubts == ("not used: 'options', because only 3 of 4 rows looked at have options",)
    plain = inspect_data(local(write_jsonl(rows(str, a=1, b=2, A=3, score=[1, 2]))))
    assert (plain.source.columns.options_key, plain.doubts) == (None, ())


def test_options_can_be_named_or_left_out(write_jsonl):
    path = write_jsonl(rows(lambda index: index, options=["w", "x", "y", "z"], mine=TEXTS))
    for named, key in (("mine", "mine"), ("", None), (None, "options")):
        assert inspect_data(local(path), NamedColumns(options_key=named)).source.columns.options_key == key


@pytest.mark.parametrize(
    ("form", "place"),
    [
        ("So 3+2=<<3+2=5>>5.\n#### {}", "behind ####"),
        ("<answer> {} </answer>", "in <answer></answer>"),
        ("It is\n\\boxed{{{}}}.", "in \\boxed{}"),
        ("{}<|im_end|>", "before a control token"),
    ],
)
def test_the_form_of_answers_is_shown_and_written_down(write_jsonl, form, place):
    path = write_jsonl([{"question": f"{number}?", "answer": form.format(number)} for number in range(37, 47)])
    found = inspect_data(local(path))
    assert [row.answer for row in found.source.open()] == [str(number) for number in range(37, 47)]
    assert f"answer '37', read {place}" in found.doubts[0]
    whole = inspect_data(local(path), NamedColumns(answer_pattern="")).source
    assert next(iter(whole.open())).answer == form.format(37)
    mine = inspect_data(local(path), NamedColumns(answer_pattern=r"(\d)\D*$")).source
    assert next(iter(mine.open())).answer == "7"


def test_verls_layout_is_found_and_a_mapping_is_named(write_jsonl):
    turns = [{"role": "user", "content": "What?"}]
    truth = {"style": "rule", "ground_truth": "5"}
    path = write_jsonl([{"data_source": "d", "prompt": turns, "reward_model": truth, "extra_info": {"answer": "x"}}])
    assert inspect_data(local(path)).source.columns.answer_key == "reward_model.ground_truth"
    found = inspect_data(local(path), NamedColumns(answer_key="reward_model"))
    assert "name reward_model.style or reward_model.ground_truth" in found.doubts[0]
    with pytest.raises(ValueError, match=r"did you mean 'reward_model\.ground_truth'"):
        inspect_data(local(path), NamedColumns(answer_key="reward_model.groundtruth"))


def test_the_first_of_several_accepted_answers_is_read(write_jsonl):
    rows = [
        {"question": f"{number}?", "answers": [f"{number}", "other", "third"][: number % 3 + 1]} for number in range(6)
    ]
    found = inspect_data(local(write_jsonl(rows)))
    assert found.source.columns.answer_key == "answers.0"
    assert found.doubts == ("answer_key: 'answers' holds lists of up to 3; the first is read ('answers.0')",)
    read = list(found.source.open())
    assert (read[2].answer, read[2].extra) == ("2", {"answers": ["2", "other", "third"]})
    tagged = [{"question": "?", "answers": [f"<answer>{number}</answer>"]} for number in range(6)]
    assert [row.answer for row in inspect_data(local(write_jsonl(tagged))).source.open()] == list("012345")
    box = inspect_data(local(write_jsonl([{"question": "Where?", "answer": [1, 2, 3, 4]}])))
    assert (box.source.columns.answer_key, box.doubts) == ("answer", ())
    named = inspect_data(local(write_jsonl(rows)), NamedColumns(answer_key="answers.0"))
    assert (named.source.columns.answer_key, named.doubts) == ("answers.0", ())
