"""Whatever shape the data has, `init` writes a config whose reward tells right from wrong, or says why it does not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.data.prompts import PromptTemplate
from rl_core.sources.rows import Row
from tasks.new_config.row_files import encoded
from tasks.new_config.writing import InitOptions, propose, write_config
from tasks.planning.trials import try_reward
from tests.rl_core.data.samples import png_bytes
from tests.rl_core.sources.test_media import JSON_FORMS, PICTURES

NAMES = ["a cat", "a dog", "a cow", "a pig"]
Shape = Callable[[int], dict[str, Any]]

READ: dict[str, tuple[Shape, Callable[[int], str]]] = {
    "number": (lambda n: {"answer": n}, str),
    "text": (lambda n: {"label": NAMES[n]}, lambda n: NAMES[n]),
    "sharegpt": (lambda n: {"messages": [{"from": "human"}, {"from": "gpt", "value": "ABCD"[n]}]}, lambda n: "ABCD"[n]),
    "latex": (lambda n: {"answer": f"\\frac{{1}}{{{n + 2}}}"}, lambda n: f"\\frac{{1}}{{{n + 2}}}"),
    "gsm8k": (lambda n: {"answer": f"So 1+{n}=<<1+{n}={n + 1}>>{n + 1}.\n#### {n + 1}"}, lambda n: str(n + 1)),
    "tagged": (lambda n: {"solution": f"<think>Hm.</think>\n<answer> {n} </answer>"}, str),
    "boxed": (
        lambda n: {"solution": f"First \\boxed{{7}}.\nThen \\boxed{{\\sqrt{{{n}}}}}."},
        lambda n: f"\\sqrt{{{n}}}",
    ),
    "accepted": (lambda n: {"answers": [str(n), f"{n}.0", "none"][: 2 + n % 2]}, str),
    "control token": (lambda n: {"answer": f"{n}<|im_end|>"}, str),
    "verl": (lambda n: {"reward_model": {"style": "rule", "ground_truth": str(n)}}, str),
    "verl's gsm8k": (lambda n: {"reward_model": {"ground_truth": f"So.\n#### {n}"}}, str),
    "index": (lambda n: {"choices": NAMES, "answer": n}, lambda n: "ABCD"[n]),
    "index as text": (lambda n: {"choices": json.dumps(NAMES), "answer": str(n)}, lambda n: "ABCD"[n]),
    "letter": (lambda n: {"options": dict(zip("ABCD", NAMES, strict=True)), "answer": "abcd"[n]}, lambda n: "ABCD"[n]),
    "columns": (lambda n: {**dict(zip("ABCD", NAMES, strict=True)), "answer": NAMES[n]}, lambda n: "ABCD"[n]),
    "arc": (lambda n: {"choices": {"text": NAMES, "label": list("ABCD")}, "answerKey": "ABCD"[n]}, lambda n: "ABCD"[n]),
    "several": (
        lambda n: {"options": NAMES, "answer": [n, (n + 1) % 4]},
        lambda n: ",".join(sorted({"ABCD"[n], "ABCD"[n - 3]})),
    ),
    "tagged letter": (lambda n: {"options": NAMES, "solution": f"<answer>{'ABCD'[n]}</answer>"}, lambda n: "ABCD"[n]),
}
"""[shape] -> the columns of a row, and the answer that a person reads in it."""

DOUBTED: dict[str, Shape] = {
    "mapping": lambda n: {"answer": {"value": str(n), "unit": "cm"}},
    "sentence": lambda n: {"answer": f"It is {NAMES[n]} that sits on the green mat by the door."},
    "thoughts": lambda n: {"messages": [
        {"role": "user"}, {"role": "assistant", "content": f"<think>\nHm.\n</think>\n\n**{n}**"}
    ]},
    "lines": lambda n: {"answer": f"First {n}.\nThen {n}."},
    "one answer": lambda n: {"answer": "5"},
    "unnamed options": lambda n: {"options": NAMES, "answer": f"{n} animals"},
}  # fmt: skip
"""[shape] -> the columns of a row that no reward can judge as it is, or of which that cannot be told."""


PictureForm = Callable[[int], Any]


def rows_of_shape(path: Path, shape: Shape, numbers: list[int], picture: PictureForm | None = None) -> Path:
    """Rows with these answers, and an image each in this form."""
    rows = [{"question": f"Question {place}?", **shape(number)} for place, number in enumerate(numbers)]
    if picture is not None:
        (path.parent / "media").mkdir()
        for number, content in enumerate(PICTURES):
            (path.parent / "media" / str(number)).write_bytes(content)
        rows = [{**row, "image": picture(place % len(PICTURES))} for place, row in enumerate(rows)]
    for row in rows:
        if "messages" in row:
            asked = row["messages"][0]
            asked["value" if "from" in asked else "content"] = row.pop("question")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


NUMBERS = st.lists(st.integers(0, 3), min_size=6, max_size=14).map(lambda numbers: [0, 1, 2, 3, *numbers])


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(READ)), st.sampled_from([None, *JSON_FORMS]), NUMBERS)
def test_the_answer_that_a_person_reads_is_found_among_others_and_no_image_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, name: str, picture: PictureForm | None, numbers: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("shape")
    shape, answer = READ[name]
    data = rows_of_shape(folder / "rows.jsonl", shape, numbers, picture)
    proposal = propose(str(data), InitOptions(), folder=folder / "data")
    config = write_config(proposal, folder / "config.yaml", max_prompt_length=64)
    read = [*config.data.train.open(), *config.data.validation.open()]
    assert all(isinstance(row, Row) for row in read), read
    assert {len(row.images) for row in read} == {int(picture is not None)}
    assert sorted(row.answer_text for row in read) == sorted(answer(number) for number in numbers)
    trial = try_reward(config)
    assert (trial.problems, trial.warnings) == ([], [])
    table = {row.name: row for row in trial.table}
    right, wrong = table["as cold_start.target_template"], table["another row's answer"]
    assert (right.right, right.overall, wrong.right) == (right.tried, 1.0, 0)


SLOTS = st.lists(st.sampled_from([0, 1, 2, 3]), min_size=12, max_size=16)


@settings(max_examples=10, deadline=None)
@given(SLOTS, st.booleans())
def test_rows_of_mmmu_keep_every_image_at_its_place(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], in_options: bool
) -> None:
    """Seven columns of which most cells are empty; the question and perhaps the options say where each image is."""
    folder = tmp_path_factory.mktemp("mmmu")
    rows, expected = [], []
    for row, number in enumerate(numbers):
        names = [f"{row}-{place}.png" for place in range(number)]
        for place, name in enumerate(names):
            (folder / name).write_bytes(png_bytes((1, 1), (row, place, 0)))
        places = [f"<image {place + 1}>" for place in reversed(range(number))]
        asked, options = (places[:1], places[1:]) if in_options else (places, [])
        cells = {f"image_{place + 1}": names[place] if place < number else "" for place in range(7)}
        choices = [*options, "this one", "that one"]
        rows.append({"question": f"{row}: {' or '.join(asked)}?", "options": str(choices), "answer": "B", **cells})
        expected.append([(folder / name).read_bytes() for name in reversed(names)])
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    proposal = propose(str(data), InitOptions(), folder=folder / "data")
    config = write_config(proposal, folder / "config.yaml", max_prompt_length=64)
    read = [row for row in (*config.data.train.open(), *config.data.validation.open()) if isinstance(row, Row)]
    read.sort(key=lambda row: int(row.question.partition(":")[0]))
    assert [[encoded(image) for image in row.images] for row in read] == expected
    template = PromptTemplate.load(config.data.prompt_template)
    prompts = [template.render(row.question, row.template_values) for row in read]
    assert [prompt.count("<image>") for prompt in prompts] == numbers
    assert not any("<image " in prompt for prompt in prompts)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(DOUBTED)), NUMBERS)
def test_data_that_no_reward_can_judge_has_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, name: str, numbers: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("shape")
    data = rows_of_shape(folder / "rows.jsonl", DOUBTED[name], numbers)
    proposal = propose(str(data), InitOptions(), folder=folder / "data")
    trial = try_reward(write_config(proposal, folder / "config.yaml", max_prompt_length=64))
    unused = [doubt for doubt in proposal.inspection.doubts if doubt.startswith("not used")]
    assert [*trial.problems, *trial.warnings, *unused]
