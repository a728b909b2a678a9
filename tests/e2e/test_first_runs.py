"""A first run on data in the formats that people have: `sightline init` on the file, `sightline run` on what it wrote,
and no option but a short end."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rl_core.config.loading import load_config
from rl_core.records.metrics_log import read
from rl_core.sources.rows import Row
from tests.e2e.runs import run_arguments, sightline, the_run
from tests.rl_core.data.samples import png_bytes

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 40
ANIMALS = ["cat", "dog", "cow", "pig"]


def picture(number: int) -> bytes:
    return png_bytes(colour=(number % 4 * 60, number, 200))


def parquet(path: Path, row: Callable[[int], dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist([row(number) for number in range(ROWS)]), path)
    return path


def gsm8k(folder: Path) -> Path:
    lines = (
        {
            "question": f"Ann has {n} apples and buys {n % 4}. How many has she?",
            "answer": f"She has {n}+{n % 4}=<<{n}+{n % 4}={n + n % 4}>>{n + n % 4}.\n#### {n + n % 4}",
        }
        for n in range(ROWS)
    )
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def science_qa(folder: Path) -> Path:
    return parquet(
        folder / "train-00000-of-00001.parquet",
        lambda n: {
            "image": {"bytes": picture(n), "path": "image.png"} if n % 2 else None,
            "question": f"Which animal is number {n}?",
            "choices": ANIMALS,
            "answer": n % 4,
            "hint": "",
            "task": "closed choice",
            "grade": "grade2",
            "subject": "natural science",
            "topic": "biology",
            "category": "Animals",
            "skill": "Name animals",
            "lecture": "Animals have names.",
            "solution": f"It is the {ANIMALS[n % 4]}.",
        },
    )


def science_qa_problems(folder: Path) -> Path:
    problems = {
        str(n): {
            "question": f"Which animal is number {n}?",
            "choices": ANIMALS,
            "answer": n % 4,
            "hint": "",
            "image": None,
            "split": "train",
            "solution": f"It is the {ANIMALS[n % 4]}.",
        }
        for n in range(ROWS)
    }
    path = folder / "problems.json"
    path.write_text(json.dumps(problems))
    return path


def verl(folder: Path) -> Path:
    return parquet(
        folder / "train.parquet",
        lambda n: {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": f"What is {n} + 1? Output the answer after ####."}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(n + 1)},
            "extra_info": {"split": "train", "index": n, "answer": f"#### {n + 1}", "question": f"What is {n} + 1?"},
        },
    )


def r1v(folder: Path) -> Path:
    return parquet(
        folder / "train-00000-of-00001.parquet",
        lambda n: {
            "image": {"bytes": picture(n), "path": None},
            "problem": f"How many items are there in picture {n}?",
            "solution": f"<answer> {n % 7} </answer>",
        },
    )


def llava(folder: Path) -> Path:
    (folder / "images").mkdir()
    for n in range(ROWS):
        (folder / "images" / f"{n}.png").write_bytes(picture(n))
    items = [
        {
            "id": f"{n}",
            "image": f"images/{n}.png",
            "conversations": [
                {"from": "human", "value": f"<image>\nWhich animal is number {n}?"},
                {"from": "gpt", "value": ANIMALS[n % 4]},
            ],
        }
        for n in range(ROWS)
    ]
    path = folder / "train.json"
    path.write_text(json.dumps(items))
    return path


def image_folder(folder: Path) -> Path:
    for n in range(ROWS):
        place = folder / "animals" / ANIMALS[n % 4]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{n}.png").write_bytes(picture(n))
    return folder / "animals"


FORMATS: dict[Callable[[Path], Path], set[str]] = {
    gsm8k: {str(n + n % 4) for n in range(ROWS)},
    science_qa: set("ABCD"),
    science_qa_problems: set("ABCD"),
    verl: {str(n + 1) for n in range(ROWS)},
    r1v: set("0123456"),
    llava: set(ANIMALS),
    image_folder: set(ANIMALS),
}
"""[format] -> the answers that a person reads in its rows."""


@pytest.mark.parametrize("write", FORMATS, ids=lambda write: write.__name__)
def test_data_of_a_known_format_is_trained_on(write: Callable[[Path], Path], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    config = tmp_path / "config.yaml"
    sightline("init", str(write(tmp_path / "data")), "--out", str(config), home=tmp_path)
    data = load_config(config).data
    rows: Iterator[Any] = (row for source in (data.train, data.validation) for row in source.open())
    answers = {row.answer_text if isinstance(row, Row) else row.reason for row in rows}
    assert answers == FORMATS[write]
    sightline(*run_arguments(tmp_path, config, "trainer.max_steps=1"), home=tmp_path, timeout=560)
    run = the_run(tmp_path / "runs")
    assert [line["step"] for line in read(run.metrics)][-1] == 1
    assert run.report.is_file()
