"""`sightline init` on the kinds of data that people have: a config that runs, or a sentence that says what is wrong."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from typer.testing import CliRunner, Result

from flows.cli import app
from rl_core.config.loading import load_config
from rl_core.config.model import TinyModel
from rl_core.config.run import RunConfig
from rl_core.models.tiny import build_tiny_model
from rl_core.sources.rows import Row
from tests.rl_core.data.samples import png_bytes

Init = Callable[..., tuple[str, RunConfig]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`run(data, *options)`: what the command printed, called in a folder of its own."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def call(data: object, *options: str) -> Result:
        return CliRunner().invoke(app, ["init", str(data), *options])

    return call


@pytest.fixture
def init(run: Callable[..., Result]) -> Init:
    """`init(data, *options)`: what was printed, and the config that was written."""

    def call(data: object, *options: str) -> tuple[str, RunConfig]:
        result = run(data, *options)
        assert result.exit_code == 0, result.output or repr(result.exception)
        return " ".join(result.output.split()), load_config(Path("config.yaml"))

    return call


def refusal(result: Result) -> str:
    assert isinstance(result.exception, ValueError), result.output
    assert not Path("config.yaml").exists()
    return str(result.exception)


def jsonl(path: Path, rows: list[dict[str, Any] | str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def image(path: Path, number: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png_bytes(colour=(number % 256, number // 256, 0)))
    return path


def rows_of(config: RunConfig) -> list[Row]:
    rows = [*config.data.train.open(), *config.data.validation.open()]
    assert all(isinstance(row, Row) for row in rows)
    return rows


def test_a_folder_of_classes_is_split_evenly_and_an_image_that_no_decoder_reads_is_named(
    init: Init, tmp_path: Path
) -> None:
    for number in range(60):
        image(tmp_path / "shapes" / ("circle", "square", "star")[number // 20] / f"{number}.png", number)
    (tmp_path / "shapes" / "square" / "00.heic").write_bytes(HEIC)
    shown, config = init(tmp_path / "shapes")
    assert "answers train: circle 18, square 18, star 18" in shown
    assert "answers validation: circle 2, square 2, star 2" in shown
    assert "(square/00.heic), column 'image': the image 00.heic is HEIC, which no installed decoder reads" in shown
    assert len(rows_of(config)) == 60


def test_a_folder_of_classes_with_a_held_out_part(init: Init, tmp_path: Path) -> None:
    for number in range(12):
        part = "test" if number > 8 else "train"
        image(tmp_path / "pets" / part / ("dog", "cat")[number % 2] / f"{number}.png", number)
    shown, config = init(tmp_path / "pets")
    assert "9 rows of imagefolder; held-out rows come from" in shown
    assert {row.answer for row in rows_of(config)} == {"cat", "dog"}
    assert "as cold_start.target_template 11 of 11 right, overall 1" in shown


def test_a_chat_template_that_begins_the_thoughts_is_named(init: Init, tmp_path: Path) -> None:
    rows = jsonl(
        tmp_path / "rows.jsonl", [{"problem": f"What is {n} plus {n}?", "answer": f"{2 * n}"} for n in range(9)]
    )
    thinking = tmp_path / "thinking"
    source = TinyModel(type="tiny", family="qwen2_5", num_layers=1)
    build_tiny_model(source, thinking, corpus=["What is 1 plus 1? 2"], seed=1)
    shown, _ = init(rows, "--model", str(thinking))
    assert "ends the prompt with <think>" not in shown
    template = thinking / "chat_template.jinja"
    template.write_text(template.read_text().replace("assistant\\n' -", "assistant\\n<think>\\n' -"))
    shown, _ = init(rows, "--model", str(thinking), "--force")
    assert "look the chat template ends the prompt with <think>: responses begin inside the thoughts, and the" in shown
    assert "as the reward reads it 9 of 9 right, overall 1" in shown


def test_columns_and_the_folder_of_images_can_be_named(init: Init, run: Callable[..., Result], tmp_path: Path) -> None:
    image(tmp_path / "far" / "away" / "0.png")
    data = jsonl(tmp_path / "rows.jsonl", [{"ask": f"{n}?", "pic": "0.png", "truth": n} for n in range(5)])
    assert "name it to `sightline init`: --prompt-key COLUMN --answer-key COLUMN" in refusal(run(data))
    named = ["--prompt-key", "ask", "--answer-key", "truth", "--image-key", "pic"]
    shown = refusal(run(data, *named))
    assert (
        "can be used; the first of 5 unusable row(s): row 0 (rows.jsonl line 1), column 'pic': the image file" in shown
    )
    shown = refusal(run(data, *named, "--media-dir", str(tmp_path / "far" / "away")))
    assert "none of the 5 usable row(s) can be held out, because all of them share an image" in shown
    image(tmp_path / "far" / "away" / "1.png", 1)
    held_out = jsonl(tmp_path / "others.jsonl", [{"ask": "?", "pic": "1.png", "truth": 1}])
    shown, config = init(data, *named, "--media-dir", str(tmp_path / "far" / "away"), "--validation", str(held_out))
    assert len(rows_of(config)) == 6
    assert "'ask'" in shown


def test_every_unusable_row_is_named_and_counted(init: Init, tmp_path: Path) -> None:
    rows: list[dict[str, Any] | str] = [{"problem": f"{n}?", "answer": n} for n in range(30)]
    for place in range(0, 30, 2):
        rows[place] = "{" if place % 4 else {"problem": "?", "answer": None}
    shown, config = init(jsonl(tmp_path / "rows.jsonl", rows))
    assert f"15 row(s) of {tmp_path / 'rows.jsonl'} cannot be used: row 0" in shown
    assert "row 0 (rows.jsonl line 1), column 'answer': the answer is missing" in shown
    assert "and 5 more" in shown
    named = [json.loads(line) for line in Path("config.data/rejected.jsonl").read_text().splitlines()]
    assert [record["index"] for record in named] == list(range(0, 30, 2))
    assert len(rows_of(config)) == 15


def test_an_existing_config_is_kept(run: Callable[..., Result], tmp_path: Path) -> None:
    Path("config.yaml").write_text("mine")
    assert isinstance(run(tmp_path).exception, ValueError)
    assert Path("config.yaml").read_text() == "mine"


HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
ADDRESS = "https://example.org/a.png"


def counted(path: Path, cell: Callable[[int], Any], *, place: str = "<image>", count: int = 24) -> Path:
    return jsonl(path, [{"problem": f"{place}{n}?", "image": cell(n), "answer": str(n)} for n in range(count)])


@pytest.mark.parametrize(
    ("cell", "place", "reason"),
    [
        (ADDRESS, "<image>", f"column 'image': '{ADDRESS}' is an address; images are read from files"),
        (base64.b64encode(HEIC).decode(), "", "column 'image': the image is HEIC, which no installed decoder reads"),
        ("a dog", "", "its first value 'a dog' is none: the image file"),
    ],
)
def test_images_that_cannot_be_read_are_refused_with_column_value_and_reason(
    run: Callable[..., Result], tmp_path: Path, cell: str, place: str, reason: str
) -> None:
    """In the words of the rows; tests/rl_core/sources/test_media.py has them all."""
    assert reason in refusal(run(counted(tmp_path / "rows.jsonl", lambda _: cell, place=place)))


def test_a_question_without_images_may_have_such_a_column(
    run: Callable[..., Result], init: Init, tmp_path: Path
) -> None:
    data = counted(tmp_path / "rows.jsonl", lambda _: 7, place="")
    assert "say --image-key '' if no question has an image" in refusal(run(data))
    _, config = init(data, "--image-key", "")
    assert not any(row.images for row in rows_of(config))


def test_the_reward_is_guessed_from_rows_of_all_parts(init: Init, tmp_path: Path) -> None:
    """The numbers come first."""
    answers = [str(number) for number in range(100)] + [f"x = {number}" for number in range(100)]
    data = jsonl(tmp_path / "rows.jsonl", [{"problem": f"{n}?", "answer": text} for n, text in enumerate(answers)])
    letters = ["A", "B"] * 50 + answers[100:]
    mixed = jsonl(tmp_path / "mixed.jsonl", [{"problem": f"{n}?", "answer": text} for n, text in enumerate(letters)])
    for path in (data, mixed):
        assert init(path, "--force")[1].reward.function == "math"


def test_held_out_rows_that_are_trained_on_are_left_out_or_moved(
    run: Callable[..., Result], init: Init, tmp_path: Path
) -> None:
    def cell(number: int) -> str:
        return base64.b64encode(png_bytes(colour=(number, 0, 0))).decode()

    train = counted(tmp_path / "rows.jsonl", cell)
    held_out = counted(tmp_path / "others.jsonl", cell, count=4)
    assert "0 held out" in refusal(run(train, "--validation", str(held_out), "--shared", "train"))
    shown, config = init(train, "--validation", str(held_out))
    assert "4 of 24 row(s)" in shown and "--shared drop leaves training rows out: 20 row(s) to train on" in shown
    assert [len(list(source.open())) for source in (config.data.train, config.data.validation)] == [20, 4]
    _, config = init(train, "--validation", str(held_out), "--shared", "held-out", "--force")
    assert [len(list(source.open())) for source in (config.data.train, config.data.validation)] == [20, 8]


def test_rows_with_and_without_an_image_are_counted(init: Init, tmp_path: Path) -> None:
    def cell(number: int) -> str | None:
        return image(tmp_path / f"{number}.png", number).name if number % 2 else None

    shown, config = init(counted(tmp_path / "rows.jsonl", cell, place=""))
    assert "12 of 24 rows have no image or video" in shown and "unusable" not in shown
    assert sorted(len(row.images) for row in rows_of(config)) == [0] * 12 + [1] * 12


@pytest.mark.parametrize(
    ("solution", "options", "shown"),
    [
        ("1+{0}=<<1+{0}={1}>>{1}.\n#### {1}", [], "answer '1', read behind ####"),
        ("So {1}.", ["--answer-pattern", r"So (\d+)"], "answer: "),
    ],
)
def test_the_short_answer_is_read_and_tried(
    init: Init, tmp_path: Path, solution: str, options: list[str], shown: str
) -> None:
    """tests/tasks/new_config/test_shapes.py has the other forms."""
    rows = [{"problem": f"1 + {number}?", "answer": solution.format(number, number + 1)} for number in range(20)]
    printed, config = init(jsonl(tmp_path / "rows.jsonl", rows), *options)
    assert shown in printed
    assert {row.answer for row in rows_of(config)} == {str(number + 1) for number in range(20)}
    assert "as cold_start.target_template 10 of 10 right, overall 1" in printed
    assert "another row's answer 0 of 10 right" in printed
    assert "look" not in printed


@pytest.mark.parametrize(
    ("ask", "options"),
    [("Which is number {}?", "? A. a cat B. a dog Reply with the letter"), ("(A) a cat ({}) a dog", "")],
)
def test_options_are_shown_to_the_model_once(init: Init, tmp_path: Path, ask: str, options: str) -> None:
    rows = [{"question": ask.format(n), "choices": ["a cat", "a dog"], "answer": n % 2} for n in range(20)]
    printed, config = init(jsonl(tmp_path / "rows.jsonl", rows))
    assert options in printed and printed.count("a cat") == 1
    assert (config.reward.function, {row.answer for row in rows_of(config)}) == ("choice", {"A", "B"})


def test_the_numbers_of_classes_with_names_become_names(init: Init, tmp_path: Path) -> None:
    names = ["cat", "dog", "owl"]
    rows = datasets.Dataset.from_dict(
        {"question": [f"Which animal says {n}?" for n in range(30)], "label": [n % 3 for n in range(30)]},
        features=datasets.Features({"question": datasets.Value("string"), "label": datasets.ClassLabel(names=names)}),
    )
    path = tmp_path / "rows.parquet"
    rows.to_parquet(path)
    shown, config = init(path)
    assert "class_names: the numbers in 'label' are classes; 0 is 'cat'" in shown
    assert {row.answer for row in rows_of(config)} == set(names)


@pytest.mark.parametrize("form", ["{}", "<answer> {} </answer>"])
def test_a_person_names_the_classes_of_numbers(init: Init, tmp_path: Path, form: str) -> None:
    """In a list or a file; numbers in tags too, besides columns that look like options."""
    answers = [form.format(n % 3) if form != "{}" else n % 3 for n in range(30)]
    rows = [{"question": f"{n}?", "label": answer, "options": ["0", "1", "2"]} for n, answer in enumerate(answers)]
    data = jsonl(tmp_path / "rows.jsonl", rows)
    shown, config = init(data, "--class-names", "cat, dog, owl")
    assert "class_names: the numbers in 'label' are classes; 0 is 'cat'" in shown
    wanted = {f"{n}?": ("cat", "dog", "owl")[n % 3] for n in range(30)}
    assert {row.question: row.answer for row in rows_of(config)} == wanted
    (tmp_path / "names.txt").write_text("cat, the animal\ndog\nowl\n")
    _, config = init(data, "--class-names", str(tmp_path / "names.txt"), "--force")
    assert {row.answer for row in rows_of(config)} == {"cat, the animal", "dog", "owl"}


@pytest.mark.parametrize(
    ("labels", "names", "words"),
    [
        ([0, 1, 2], "cat,dog", "class_names has 2 names, of the numbers 0 to 1, and 'label' has 2"),
        ([1, 2, 3], "cat,dog,owl", "'label' has 3; the numbers begin at 1: name a class 0 too, before the others"),
        (["cat", "dog", "owl"], "cat,dog,owl", "no answer of the rows looked at in 'label' is the number of a class"),
        ([0, 1, 0], "cat,dog,cat", "--class-names cat,dog,cat: 'cat' is there twice"),
        ([0, 1, 0], "cat,,dog", "--class-names cat,,dog: '' is no name"),
    ],
)
def test_names_that_do_not_fit_the_numbers_of_classes_are_refused(
    run: Callable[..., Result], tmp_path: Path, labels: list[int | str], names: str, words: str
) -> None:
    rows = [{"question": f"{n}?", "label": labels[n % 3]} for n in range(30)]
    assert words in refusal(run(jsonl(tmp_path / "rows.jsonl", rows), "--class-names", names))
