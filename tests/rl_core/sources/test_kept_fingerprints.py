"""Fingerprints of sources do not change, so that data that older runs have prepared is recognised."""

from pathlib import Path

import pytest

from rl_core.data.fingerprint import preparation_fingerprint
from rl_core.sources.columns import Columns
from rl_core.sources.hub import HubSource
from rl_core.sources.mixture import MixtureSource
from rl_core.sources.source import DataSource
from tests.rl_core.data.samples import counting, data_config, local

FILES = {
    "rows.jsonl": '{"problem": "<image>?", "answer": "1", "images": ["a.png"]}\n{"problem": "2?", "answer": 2}\n',
    "a.png": "not decoded here",
    "pets/cat/1.png": "one",
    "pets/dog/2.png": "two",
    "items/1/data.json": '{"annotat_text": "x", "choices": ["1"], "answer": "A"}',
    "items/1/img_diagram.png": "three",
    "hub/train.jsonl": "{}",
    "model/tokenizer.json": "{}",
}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def _in_a_folder_of_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("source", "fingerprint"),
    [
        (counting(5, image_size=56), "d5f373baaa5a"),
        (local("rows.jsonl"), "1a2f0fcc1bdc"),
        (local("rows.jsonl", limit=1, columns=Columns(images_first=True)), "3be351a3fd94"),
        (local("pets"), "ef1660a11e13"),
        (local("items"), "e7a31c29e210"),
        (HubSource(type="hub", name="owner/name@test", revision=COMMIT), "1943b454955f"),
        (HubSource(type="hub", name="hub@train"), "25321494addf"),
        (
            MixtureSource(type="mixture", sources={"drawn": counting(5), "written": local("rows.jsonl")}),
            "c54775f83df2",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.type,
)
def test_a_source_has_the_fingerprint_that_it_had(source: DataSource, fingerprint: str) -> None:
    assert source.fingerprint() == fingerprint


def test_a_preparation_has_the_fingerprint_that_it_had() -> None:
    data = data_config(validation=local("rows.jsonl"))
    found = preparation_fingerprint(data, model_folder=Path("model"), cold_start_source=counting(5))
    assert found == "9af5fceb7af4"
