"""What is written in several threads is what torch's own writer writes, hashed on the way."""

import errno

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from rl_core.checkpoints import hashed_writer
from rl_core.checkpoints.sharded import load_sharded, save_sharded
from rl_core.digests import folder_records, hash_file


def state(seed: int = 0, *, size: int = 50) -> dict[str, object]:
    generator = torch.Generator().manual_seed(seed)
    tensors = {f"layer {number}": torch.randn(size, number + 1, generator=generator) for number in range(9)}
    half = torch.randn(2 * size, generator=generator).bfloat16()[size:]
    return {"tensors": {**tensors, "half": half, "step": torch.tensor(3.0)}, "names": ["a", "b"], "count": 3}


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_small_state_is_one_file_with_the_bytes_of_torchs_writer(tmp_path):
    save_sharded(tmp_path / "ours", state())
    save(state(), storage_writer=FileSystemWriter(tmp_path / "theirs"), no_dist=True)
    assert [path.name for path in (tmp_path / "ours").glob("*.distcp")] == ["__0_0.distcp"]
    assert (tmp_path / "ours/__0_0.distcp").read_bytes() == (tmp_path / "theirs/__0_0.distcp").read_bytes()


@pytest.fixture
def small_files(monkeypatch) -> None:
    monkeypatch.setattr(hashed_writer, "FILE_BYTES", 2000)


@pytest.mark.usefixtures("small_files")
def test_a_large_state_is_several_files_and_comes_back_equal(tmp_path):
    written = save_sharded(tmp_path, state())
    names = {path.name for path in tmp_path.glob("*.distcp")}
    assert len(names) > 2
    assert written.keys() == names
    for name, record in written.items():
        assert (record.size, record.sha256) == ((tmp_path / name).stat().st_size, hash_file(tmp_path / name))
    sizes = sorted(record.size for record in written.values())
    assert sizes[-1] < 2 * sizes[0], "about equal"
    expected, found = state(), {**state(seed=1), "names": [], "count": 0}
    load_sharded(tmp_path, found)
    assert (found["names"], found["count"]) == (["a", "b"], 3)
    assert all(torch.equal(found["tensors"][name], tensor) for name, tensor in expected["tensors"].items())


@pytest.mark.usefixtures("small_files")
def test_equal_states_give_equal_files_whichever_thread_is_faster(tmp_path):
    for number in range(5):
        save_sharded(tmp_path / f"{number}", state())
    assert all(folder_records(tmp_path / "0") == folder_records(tmp_path / f"{number}") for number in range(1, 5))


def test_a_disk_that_is_full_in_one_of_the_threads_is_an_error(small_disk, monkeypatch):
    monkeypatch.setattr(hashed_writer, "FILE_BYTES", 300_000)
    with pytest.raises(OSError) as full:
        save_sharded(small_disk, state(size=8000))
    assert full.value.errno == errno.ENOSPC
