import pytest

from rl_core.data.preparation import prepare_dataset
from rl_core.data.prepared import PreparedDataset
from rl_core.progress import SilentProgress
from tests.rl_core.data.samples import data_config


@pytest.fixture
def folder(tiny_folder, tmp_path):
    prepare_dataset(
        data_config(), model_folder=tiny_folder("qwen2_5_vl"), out=tmp_path / "out", progress=SilentProgress()
    )
    return tmp_path / "out"


def test_a_dataset_is_a_sequence_of_prompts(folder):
    dataset = PreparedDataset.open(folder, "train")
    assert len(dataset) == len(list(dataset)) == 12
    assert dataset[-1].uid == dataset[11].uid == list(dataset)[11].uid
    assert [prompt.uid for prompt in dataset[2:4]] == [dataset[2].uid, dataset[3].uid]
    with pytest.raises(IndexError):
        dataset[12]


@pytest.mark.parametrize("name", ["train.parquet", "images.arrow", "rejected.jsonl"])
def test_a_missing_or_altered_file_is_named(folder, name):
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data + b"x")
    with pytest.raises(ValueError, match=f"{name} missing or altered"):
        PreparedDataset.open(folder, "train")
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"{name} missing or altered"):
        PreparedDataset.open(folder, "train")


def test_a_folder_without_or_with_a_damaged_manifest_is_refused(folder):
    for text in ("{", "{}", '{"splits": {"train": {}}}', "[]"):
        (folder / "manifest.json").write_text(text)
        with pytest.raises(ValueError, match=r"manifest.json is damaged"):
            PreparedDataset.open(folder, "train")
    (folder / "manifest.json").unlink()
    with pytest.raises(ValueError, match="holds no prepared data"):
        PreparedDataset.open(folder, "train")
