from pathlib import Path

import pytest
from huggingface_hub import constants

from rl_core.sources.hub import HubSource
from rl_core.sources.local import LocalSource
from tasks.new_config.data_lookup import find_pair, source_of, training_data


def test_a_path_on_this_machine_is_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "name").touch()
    monkeypatch.chdir(tmp_path)
    assert source_of("owner/name", "/media") == LocalSource(type="local", path="owner/name", media_dir="/media")


@pytest.mark.parametrize("name", ["rows.parquet", "a/b/c", "x" * 5000])
def test_a_path_where_nothing_lies_is_refused_as_such(name: str) -> None:
    with pytest.raises(ValueError, match=r"there is no file or folder .*; a data set of the hub is named owner/name"):
        source_of(name, None)
    with pytest.raises(ValueError, match="there is no file or folder"):
        find_pair(name)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The hub's cache; nothing else is asked."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", ["owner/name", "owner/name@train"])
def test_a_name_of_the_hub_is_asked_for_there(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name.partition('@')[0]}.*: the hub cannot be reached"):
        source_of(name, None)


def test_a_split_of_the_hub_is_pinned_to_its_commit(cache: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = cache / "datasets--owner--name"
    for folder in ("refs", f"snapshots/{commit}"):
        (repository / folder).mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    (repository / "snapshots" / commit / "README.md").touch()
    assert source_of("owner/name@test", None) == HubSource(type="hub", name="owner/name@test", revision=commit)
    assert find_pair("owner/name@test") is None


def test_a_folder_with_a_training_split_alone_means_it(tmp_path: Path) -> None:
    (tmp_path / "train" / "cat").mkdir(parents=True)
    (tmp_path / "train" / "cat" / "1.png").touch()
    assert training_data(str(tmp_path)) == str(tmp_path / "train")
    assert training_data(str(tmp_path / "train")) == str(tmp_path / "train")
    (tmp_path / "rows.jsonl").write_text("{}\n")
    assert training_data(str(tmp_path)) == str(tmp_path)
