import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText

from rl_core.checkpoints.manifest import CheckpointInfo
from rl_core.checkpoints.store import CheckpointStore
from rl_core.config.loading import dump_config
from rl_core.evaluation.model_lookup import FoundModel, find_model
from rl_core.run_directory import RunDirectory
from rl_core.training.batches import UpdateBatch
from tests.rl_core.builders import groups_of
from tests.rl_core.steps import optimizer_batch, save_state


@pytest.fixture
def own_run(prepared_run: RunDirectory, config, tmp_path: Path) -> RunDirectory:
    """A copy to write into."""
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(prepared_run.root, run.root)
    run.config.write_text(dump_config(config))
    return run


def test_a_folder_is_itself(prepared_run: RunDirectory) -> None:
    with find_model(str(prepared_run.initial_model)) as model:
        assert model == FoundModel(folder=prepared_run.initial_model, origin=f"folder {prepared_run.initial_model}")


def test_a_run_is_its_merged_model(own_run: RunDirectory) -> None:
    with (
        pytest.raises(ValueError, match="a run without a merged model: sightline merge"),
        find_model(str(own_run.root)),
    ):
        pass
    shutil.copytree(own_run.initial_model, own_run.merged_model)
    with find_model(str(own_run.root)) as model:
        assert model.folder == own_run.merged_model


def test_a_checkpoint_is_exported_with_its_own_weights(own_run: RunDirectory, worker, train_groups) -> None:
    worker.update(UpdateBatch(policy=[optimizer_batch(train_groups)], check_agreement=False))
    expected = {name: weight.clone() for name, weight in worker.trainer.policy.model.state_dict().items()}
    probe = groups_of(train_groups[:1])
    saved = CheckpointStore(own_run.checkpoints, save_limit=1).save(
        lambda folder: save_state(worker, folder, model_only=True, probe=probe),
        info=CheckpointInfo(step=1, epoch=1, end_of_epoch=True),
    )
    with find_model(str(saved.folder)) as model:
        exported = AutoModelForImageTextToText.from_pretrained(model.folder, dtype=torch.float32).state_dict()
        assert all(torch.equal(exported[name], expected[name]) for name in expected)
        assert (model.folder / "tokenizer.json").is_file()
        assert model.own_dtype() == "float32"
    assert not model.folder.exists()


@pytest.mark.parametrize(
    ("named", "dtype"),
    [
        ({"dtype": "float32"}, "float32"),
        ({"torch_dtype": "float32"}, "float32"),
        ({"text_config": {"dtype": "float32"}}, "float32"),
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"torch_dtype": "float16"}, "bfloat16"),
        ({}, "bfloat16"),
    ],
)
def test_the_number_format_is_the_checkpoints_own(tmp_path: Path, named: dict, dtype: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(named))
    assert FoundModel(folder=tmp_path, origin="").own_dtype() == dtype


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is not a model: it has no config\.json"), find_model(str(tmp_path)):
        pass
    with (
        pytest.raises(ValueError, match="there is no folder nowhere, and it is not an owner/name"),
        find_model("nowhere"),
    ):
        pass
