"""A data set with code in it, of every kind that a library has once run: nothing of it runs, and nothing is unpacked
outside its folder."""

import contextlib
import io
import json
import pickle
import tarfile
import zipfile
from pathlib import Path

import pytest

from rl_core.config.loading import ConfigError, load_config
from rl_core.data.pixels import read_image
from rl_core.data.prompts import PromptTemplate
from rl_core.sources.columns import Columns
from rl_core.sources.hub import HubSource
from rl_core.sources.rows import BadRow
from tests.rl_core.bomb import Bomb
from tests.rl_core.data.samples import png_bytes


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    import datasets.config

    for name in ("HF_DATASETS_CACHE", "DOWNLOADED_DATASETS_PATH", "EXTRACTED_DATASETS_PATH"):
        monkeypatch.setattr(datasets.config, name, tmp_path / "cache" / name)


@pytest.fixture
def marker(tmp_path) -> Path:
    return tmp_path / "executed"


@pytest.fixture
def folder(tmp_path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    return folder


def rows_of(folder: Path, **columns: str) -> list[object]:
    return list(HubSource(type="hub", name=f"{folder}@train", columns=Columns(**columns)).open())


@pytest.mark.parametrize("kind", ["script", "pandas", "pickle", "pkl", "pyd", "pth"])
def test_neither_a_loading_script_runs_nor_a_pickle_of_any_kind(folder, marker, kind):
    bomb = pickle.dumps(Bomb(marker))
    if kind == "script":
        (folder / f"{folder.name}.py").write_text(f"from pathlib import Path\nPath({str(marker)!r}).touch()\n")
    elif kind == "pandas":
        (folder / "train.pkl").write_bytes(bomb)
    else:
        with tarfile.open(folder / "train.tar", "w") as archive:
            for name, data in (("0.json", json.dumps({"problem": "?"}).encode()), (f"0.{kind}", bomb)):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    with pytest.raises(ValueError, match="data source"):
        rows_of(folder)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["../../../../../../../../../..{victim}", "{victim}"])
def test_an_archive_unpacks_nothing_outside_the_cache(folder, tmp_path, name):
    victim = tmp_path / "victim.png"
    with zipfile.ZipFile(folder / "train.zip", "w") as archive:
        archive.writestr("0.png", png_bytes())
        archive.writestr("metadata.jsonl", json.dumps({"file_name": "0.png", "problem": "<image>", "answer": "1"}))
        archive.writestr(name.format(victim=victim), png_bytes())
    with contextlib.suppress(ValueError):  # refusing the archive is as good as reading past that entry
        rows_of(folder, image_key="image")
    assert not victim.exists()


def test_a_table_cannot_name_a_file_of_this_machine_as_an_image(tmp_path, folder):
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq

    private = tmp_path / "private.png"
    private.write_bytes(png_bytes())
    features = datasets.Features({name: datasets.Value("string") for name in ("problem", "answer")})
    features["images"] = datasets.Sequence(datasets.Image())
    row = {"problem": "<image>", "answer": "1", "images": [{"bytes": None, "path": str(private)}]}
    pq.write_table(pa.Table.from_pylist([row], schema=features.arrow_schema), folder / "train-00000-of-00001.parquet")
    (found,) = rows_of(folder)
    assert isinstance(found, BadRow)
    assert "leads out of" in found.reason


def test_an_image_that_is_a_program_is_not_run(tmp_path, marker, monkeypatch):
    """Pillow hands EPS to Ghostscript, whose interpreter has been broken out of more than once."""
    interpreter = tmp_path / "bin" / "gs"
    interpreter.parent.mkdir()
    interpreter.write_text(f"#!/bin/sh\ntouch {marker}\n")
    interpreter.chmod(0o755)
    monkeypatch.setenv("PATH", str(interpreter.parent), prepend=":")
    program = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"
    with pytest.raises(ValueError, match="of no known format"):
        read_image(program)
    assert not marker.exists()


def test_a_prompt_template_reaches_nothing_of_the_interpreter():
    with pytest.raises(ValueError, match="access to attribute '__class__' of 'str' object is unsafe"):
        PromptTemplate("{{ content.__class__.__mro__[1].__subclasses__() }}")


@pytest.mark.parametrize("tag", ["!!python/object/apply:pathlib.Path.touch", "!!python/name:os.system"])
def test_a_config_is_data(tmp_path, marker, tag):
    path = tmp_path / "config.yaml"
    path.write_text(f"experiment: {tag} ['{marker}']\n")
    with pytest.raises(
        ConfigError, match="not YAML that can be read: line 1, column 13: could not determine a constructor"
    ):
        load_config(path)
    assert not marker.exists()
