"""The folders that a worker reads."""

from pathlib import Path

from rl_core.workers.folders import WorkerFolders


def test_the_time_to_read_a_model_follows_the_size_of_its_weights(tmp_path: Path) -> None:
    folders = WorkerFolders(model=tmp_path, base=tmp_path, data=tmp_path, images_per_prompt=0)
    assert folders.reading_seconds == 0
    for part in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
        with (tmp_path / part).open("wb") as file:
            file.truncate(32_500_000_000)  # without taking room on the disk
    (tmp_path / "tokenizer.json").write_bytes(b"0" * 100)
    assert folders.reading_seconds == 1300
