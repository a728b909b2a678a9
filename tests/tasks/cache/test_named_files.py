"""Files that a config names are found from its folder, wherever a command is called."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.run_directory import RunDirectory
from tasks.cache.kept_files import files_of_run, keep_files
from tasks.cache.named_files import NamedFiles, located_config
from tasks.cache.stages import run_name, stage_digests
from tests.tasks.cache.test_kept_files import FILES, NAMES, write

SMALL = Path(__file__).parents[2] / "e2e" / "configs" / "small.yaml"
GLOB = "data.validation.sources.many={type: local, path: 'data/held*.jsonl'}"
CHECKPOINT = "model.source={type: pretrained, path: models/mine}"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The folder of a config, and the working directory."""
    folder, here = tmp_path / "project", tmp_path / "here"
    for place in (folder, here):
        place.mkdir()
    (folder / "config.yaml").write_text(SMALL.read_text())
    monkeypatch.chdir(here)
    return folder, here


def config_in(folder: Path) -> RunConfig:
    return load_config(folder / "config.yaml", [*(f"{key}={value}" for key, value in NAMES.items()), GLOB, CHECKPOINT])


def files_of(config: RunConfig) -> NamedFiles:
    return NamedFiles(paths_from=config.paths_from)


def filled(folder: Path) -> None:
    write(folder, FILES | {"models/mine/config.json": "{}", "data/images/one.txt": ""})


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)


def named_in(config: RunConfig) -> set[str]:
    """Every text of the config that names one of the files."""
    folders = {name.partition("/")[0] for name in FILES} | {"models"}
    shown = set(texts(config.model_dump(exclude={"paths_from"})))
    return {text for text in shown if folders & set(text.split("/")[:-1])}


def test_every_key_that_names_a_file_starts_from_the_folder_of_the_config(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = places
    filled(folder)
    config = config_in(folder)
    files = files_of(config)
    located = located_config(config, files)
    assert named_in(located) == {f"{folder}/{name}" for name in named_in(config)} and len(named_in(config)) >= 12
    assert located.tracking.mlflow_uri == "sqlite:///mlflow.db", "what is written is not looked for"
    assert not files.problems()
    elsewhere, name = stage_digests(config), run_name(config)
    monkeypatch.chdir(folder)
    again = load_config(Path("config.yaml"), [*(f"{key}={value}" for key, value in NAMES.items()), GLOB, CHECKPOINT])
    assert again == config and run_name(again) == name
    assert stage_digests(again) == elsewhere


def test_the_working_directory_is_second_and_is_named(places: tuple[Path, Path]) -> None:
    folder, here = places
    filled(here)
    config = config_in(folder)
    files = files_of(config)
    assert named_in(located_config(config, files)) == named_in(config)
    found = [str(problem) for problem in files.problems()]
    assert len(found) == len({name.partition(":")[0] for name in named_in(config)}) and not any(
        problem.fatal for problem in files.problems()
    )
    assert f"prompts/ask.jinja is read from the working directory; there is none in {folder}" in " ".join(found)


def test_of_two_files_the_one_beside_the_config_is_read_and_named(places: tuple[Path, Path]) -> None:
    folder, here = places
    filled(folder)
    write(here, {"prompts/ask.jinja": "another {{ content }}"})
    files = files_of(config_in(folder))
    assert files.fixed_file("prompts/ask.jinja") == folder / "prompts/ask.jinja"
    (found,) = files.problems()
    assert "another one lies in the working directory" in found.what


def test_a_missing_file_is_located_in_the_folder_of_the_config(places: tuple[Path, Path]) -> None:
    folder, _ = places
    config = config_in(folder)
    located = located_config(config, files_of(config))
    assert located.data.prompt_template == str(folder / "prompts/ask.jinja")
    assert located.model.source.path == "models/mine", "it may be a name of the hub"


def test_files_of_an_extended_config_may_lie_beside_that(places: tuple[Path, Path]) -> None:
    folder, here = places
    filled(folder)
    (here / "child.yaml").write_text("extends: ../project/config.yaml\ndata: {prompt_template: prompts/ask.jinja}\n")
    write(here, {"prompts/own.jinja": "{{ content }}"})
    config = load_config(Path("child.yaml"))
    assert config.paths_from == (str(here), str(folder))
    assert files_of(config).fixed_file("prompts/ask.jinja") == folder / "prompts/ask.jinja"
    assert files_of(config).fixed_file("prompts/own.jinja") == here / "prompts/own.jinja"


@pytest.mark.parametrize("is_next_to_config", [True, False])
def test_a_run_goes_on_from_any_working_directory(
    places: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_next_to_config: bool
) -> None:
    folder, here = places
    filled(folder if is_next_to_config else here)
    config, run = config_in(folder), RunDirectory(tmp_path / "run")
    keep_files(run, config, files_of(config))
    write(run.root, {"data/train.jsonl": "of the run itself"})
    expected = stage_digests(config)
    monkeypatch.chdir(tmp_path)
    assert stage_digests(config, files_of_run(config, run)) == expected
