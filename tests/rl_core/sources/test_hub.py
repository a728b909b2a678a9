import huggingface_hub.constants
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rl_core.sources.columns import Columns
from rl_core.sources.hub import HubSource, config_names, resolve_commit, split_names, why_no_config
from rl_core.sources.rows import Row
from tests.rl_core.data.samples import png_bytes, write_broken_text

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def own_caches(tmp_path, monkeypatch):
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


@pytest.fixture
def dataset_folder(tmp_path):
    """A dataset repository's files, images embedded as `datasets` does, in two splits."""
    import datasets

    features = datasets.Features(
        {
            "problem": datasets.Value("string"),
            "answer": datasets.Value("int64"),
            "images": datasets.Sequence(datasets.Image()),
        }
    )
    folder = tmp_path / "repository"
    (folder / "data").mkdir(parents=True)
    for split, count in (("train", 3), ("test", 2)):
        rows = [
            {"problem": f"<image>{split} {n}", "answer": n, "images": [{"bytes": png_bytes(), "path": None}]}
            for n in range(count)
        ]
        rows[-1]["images"] = [{"bytes": b"no image at all", "path": None}]
        table = pa.Table.from_pylist(rows, schema=features.arrow_schema)
        pq.write_table(table, folder / "data" / f"{split}-00000-of-00001.parquet")
    return folder


def hub(name, **options):
    return HubSource(type="hub", name=name, **options)


def test_one_split_is_read_through_datasets_without_decoding_an_image(dataset_folder):
    rows = list(hub(f"{dataset_folder}@train").open())
    assert [row.question for row in rows] == ["<image>train 0", "<image>train 1", "<image>train 2"]
    assert rows[0].images == (png_bytes(),)
    assert rows[2].images == (b"no image at all",)  # decoding would have raised here
    assert all(isinstance(row, Row) and row.answer == row.index for row in rows)


def test_a_misspelt_key_and_a_missing_split_are_refused(dataset_folder):
    with pytest.raises(ValueError, match="did you mean 'answer'"):
        hub(f"{dataset_folder}@train", columns=Columns(answer_key="anser")).open()
    with pytest.raises(ValueError, match="Unknown split"):
        hub(f"{dataset_folder}@validation").open()


def test_offline_the_local_cache_knows_the_commit_of_a_branch(tmp_path):
    repository = tmp_path / "hub-cache" / "datasets--owner--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "snapshots" / COMMIT).mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "snapshots" / COMMIT / "README.md").write_text("a data set")
    assert resolve_commit("owner/name", None) == COMMIT
    with pytest.raises(ValueError, match="does not know revision 'other'"):
        resolve_commit("owner/name", "other")


def test_offline_without_a_cache_says_what_to_do():
    with pytest.raises(ValueError, match="go online once"):
        hub("owner/name@train").open()


def test_a_cached_copy_of_another_commit_is_refused(dataset_folder, monkeypatch):
    """Offline, `datasets` gives its newest copy whatever commit is asked for."""
    import datasets

    copy = datasets.load_dataset(str(dataset_folder), split="train")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: copy)
    with pytest.raises(ValueError, match=f"not {COMMIT}"):
        hub("owner/name@train", revision=COMMIT).open()


def test_a_text_that_is_no_utf8_costs_its_row(tmp_path):
    (tmp_path / "repository").mkdir()
    write_broken_text(tmp_path / "repository" / "train-00000-of-00001.parquet")
    first, bad, last = hub(f"{tmp_path}/repository@train").open()
    assert (first.extra, last.extra) == ({"note": "a"}, {"note": "c"})
    assert (bad.index, bad.column) == (1, "note")
    assert "no UTF-8" in bad.reason


def test_a_folder_with_a_missing_shard_is_refused(tmp_path):
    for name in ("train-00000-of-00003", "train-00002-of-00003", "test-00000-of-00001"):
        pq.write_table(pa.table({"problem": ["?"], "answer": ["1"]}), tmp_path / f"{name}.parquet")
    with pytest.raises(ValueError, match=r"@train: 1 of 3 shards of train are missing: train-00001-of-00003\.parquet"):
        hub(f"{tmp_path}@train").open()


def test_the_splits_of_a_data_set_are_known_without_reading_it(dataset_folder):
    assert split_names(str(dataset_folder)) == ["train", "test"]
    with pytest.raises(ValueError, match="the hub cannot be reached and the cache does not know"):
        split_names("owner/name")


@pytest.mark.parametrize(
    ("configs", "chosen", "why"),
    [
        (None, None, None),
        (None, "main", None),  # the files may say more than the card
        ([{"config_name": "main"}], None, None),
        ([{"config_name": "main"}, {"config_name": "default"}], None, None),
        ([{"config_name": "main", "default": True}, {"config_name": "socratic"}], None, None),
        ([{"data_files": "a.csv"}, {"config_name": "more"}], None, None),
        ([{"config_name": "main"}, {"config_name": "socratic"}], "main", None),
        ([{"config_name": "a"}, {"config_name": 2}], None, "has several configurations: set `config` to one of a, 2"),
        ([{"config_name": "main"}], "Main", "has no configuration 'Main': set `config` to one of main"),
    ],
)
def test_a_card_says_which_configurations_there_are(configs, chosen, why):
    assert why_no_config({"configs": configs}, chosen) == why


def test_a_card_that_is_no_yaml_is_named(tmp_path):
    (tmp_path / "README.md").write_text("---\nconfigs: [\n---\n")
    with pytest.raises(ValueError, match=r"the metadata at the head of .*README\.md are no YAML"):
        hub(f"{tmp_path}@train").glance()


def test_a_data_set_with_several_configurations_wants_one_of_them_named(tmp_path):
    for config, answer in (("main", "1"), ("socratic", "2")):
        (tmp_path / config).mkdir()
        (tmp_path / config / "train.jsonl").write_text(f'{{"problem": "?", "answer": "{answer}"}}\n')
    listed = [f'- config_name: {name}\n  data_files: "{name}/*.jsonl"\n' for name in ("main", "socratic")]
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{''.join(listed)}---\n")
    (row,) = hub(f"{tmp_path}@train", config="socratic", columns=Columns(image_key=None)).open()
    assert row.answer == "2"
    several = "several configurations: set `config` to one of main, socratic"
    with pytest.raises(ValueError, match=several):
        hub(f"{tmp_path}@train").open()
    with pytest.raises(ValueError, match=several):
        hub(f"{tmp_path}@train").glance()  # as a plan does
    with pytest.raises(ValueError, match="has no configuration 'sokratic': set `config` to one of main, socratic"):
        hub(f"{tmp_path}@train", config="sokratic").glance()
    assert hub(f"{tmp_path}@train", config="socratic").glance().problem is None
    assert config_names(str(tmp_path)) == ["main", "socratic"]
    assert split_names(str(tmp_path), "main") == ["train"]
