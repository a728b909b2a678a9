"""A model is built once, wherever that happens, and no cache file can break a plan."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: F401 - a process that has it builds the model itself

from rl_core.planning import meta_model, model_sizes
from rl_core.planning.model_sizes import describe_model

FIELDS = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 300,
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Iterator[Path]:
    """An empty cache folder, in which the next description is looked up again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model_sizes._described.cache_clear()
    yield tmp_path / "sightline" / "models"
    model_sizes._described.cache_clear()


def described_again() -> Any:
    """What another process would get."""
    model_sizes._described.cache_clear()
    return describe_model(FIELDS, places=())


def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")


def refuse_to_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(fields: str) -> Any:
        raise AssertionError(fields)

    monkeypatch.setattr(model_sizes, "_built_here", build)
    monkeypatch.setattr(model_sizes, "_built_elsewhere", build)


def test_a_process_without_torch_gets_the_same_description(monkeypatch, cache):
    here = describe_model(FIELDS, places=())
    for file in cache.iterdir():
        file.unlink()
    with monkeypatch.context() as patch:
        without_torch(patch)
        assert described_again() == here
    with monkeypatch.context() as patch:
        refuse_to_build(patch)
        assert described_again() == here, "the file of the other process is read"


def test_an_error_is_raised_in_both_processes_and_not_kept(monkeypatch, cache, tmp_path, capsys):
    wrong = FIELDS | {"num_hidden_layers": "many"}
    with pytest.raises(ValueError, match="transformers cannot build the model") as here:
        describe_model(wrong, places=())
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"fields": wrong, "places": []})))
    meta_model._main()
    printer = tmp_path / "printer.py"
    printer.write_text(f"print({capsys.readouterr().out!r})")
    model_sizes._described.cache_clear()
    monkeypatch.setattr(model_sizes, "_BUILDER_FILE", printer)
    without_torch(monkeypatch)
    with pytest.raises(ValueError, match="transformers cannot build the model") as elsewhere:
        describe_model(wrong, places=())
    assert str(here.value) == str(elsewhere.value)
    assert not cache.exists()


def test_a_process_that_dies_refuses_no_plan(monkeypatch, tmp_path, caplog):
    """The machine may have killed it for its memory."""
    dying = tmp_path / "dying.py"
    dying.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    monkeypatch.setattr(model_sizes, "_BUILDER_FILE", dying)
    without_torch(monkeypatch)
    assert described_again() is None
    assert "the process that counts them ended with signal SIGKILL" in caplog.text


@pytest.mark.parametrize("content", ["", "[]", "\udcff"])
def test_a_broken_file_is_written_again(cache, content):
    good = describe_model(FIELDS, places=())
    (file,) = cache.iterdir()
    file.write_bytes(content.encode(errors="surrogateescape"))
    assert described_again() == good
    assert json.loads(file.read_text()) == good


@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_another_version_builds_again(monkeypatch, cache, package):
    describe_model(FIELDS, places=())
    versions = model_sizes.version
    monkeypatch.setattr(model_sizes, "version", lambda name: "0.1" if name == package else versions(name))
    described_again()
    assert len(list(cache.iterdir())) == 2


def test_a_description_that_takes_too_long_is_not_known(monkeypatch, cache, caplog):
    monkeypatch.setattr(model_sizes, "SECONDS", 0.01)
    without_torch(monkeypatch)
    with caplog.at_level(logging.WARNING):
        assert describe_model(FIELDS, places=()) is None
    assert "took more than 0.01 seconds" in caplog.text
    assert not cache.exists()
