"""Finds a model by its name: a Hugging Face folder, a run, a checkpoint of a run, or a name on the hub."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rl_core.checkpoints.manifest import MANIFEST_NAME, read_checkpoint, verify
from rl_core.config.loading import load_config
from rl_core.data.prepared import PreparedDataset
from rl_core.progress import SilentProgress
from rl_core.run_directory import RunDirectory
from rl_core.workers.folders import WorkerFolders
from rl_core.workers.opening import open_workers

Dtype = Literal["float32", "bfloat16"]

_OTHER_FORMATS = ["*.bin", "*.pth", "*.gguf", "*.onnx", "*.msgpack", "*.h5", "original/*"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundModel:
    """A model that can be loaded: its folder in Hugging Face format, and where it comes from, in words (for a model of
    the hub, with the commit)."""

    folder: Path
    origin: str

    def own_dtype(self) -> Dtype:
        """The number format that the model's config names; bfloat16 where it names neither float32 nor bfloat16."""
        config = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        named = {**config.get("text_config", {}), **config}
        return "float32" if "float32" in (named.get("dtype"), named.get("torch_dtype")) else "bfloat16"


@contextmanager
def find_model(name: str) -> Iterator[FoundModel]:
    """Find the model that `name` leads to: a folder with a config.json; the folder of a run, for its merged model; the
    folder of a checkpoint, which is exported into a temporary folder; else `owner/name[@revision]` on the hub.

    Raises:
        ValueError: `name` is none of these, or the checkpoint is damaged.
        OSError: the hub has no such model or cannot be reached.
    """
    path = Path(name)
    run = RunDirectory(path)
    if (path / "config.json").is_file():
        yield FoundModel(folder=path, origin=f"folder {path}")
    elif run.config.is_file():
        if not run.merged_model.is_dir():
            raise ValueError(f"{path} is a run without a merged model: sightline merge {path}, or name a checkpoint")
        yield FoundModel(folder=run.merged_model, origin=f"merged model of run {run.name}")
    elif (path / MANIFEST_NAME).is_file():
        with tempfile.TemporaryDirectory() as scratch:
            yield FoundModel(folder=_export(path, Path(scratch)), origin=f"checkpoint {path}")
    elif path.exists():
        raise ValueError(
            f"{path} is not a model: it has no config.json, and is neither a run nor a checkpoint of a run"
        )
    else:
        yield _from_hub(name)


def _export(checkpoint_folder: Path, folder: Path) -> Path:
    """Write the weights of a checkpoint in Hugging Face format; loading them checks them against the checkpoint's
    probe."""
    checkpoint = read_checkpoint(checkpoint_folder)
    verify(checkpoint)
    run = RunDirectory(checkpoint_folder.resolve().parents[1])
    if not run.config.is_file():
        raise ValueError(f"{checkpoint_folder} is not in the folder of its run, whose config and data it needs")
    config = load_config(run.config)
    folders = WorkerFolders.of_run(config, run, PreparedDataset.open_all(run.data))
    workers = open_workers(config, folders, total_optimizer_steps=1, progress=SilentProgress())
    try:
        workers.load("saved policy", checkpoint.folder)
        workers.export(folder)
    finally:
        workers.close()
    return folder


def _from_hub(name: str) -> FoundModel:
    from huggingface_hub import snapshot_download

    repository, _, revision = name.partition("@")
    if repository.count("/") != 1:
        raise ValueError(f"there is no folder {name}, and it is not an owner/name of the hub either")
    folder = Path(snapshot_download(repository, revision=revision or None, ignore_patterns=_OTHER_FORMATS))
    return FoundModel(folder=folder, origin=f"{repository} on the hub, commit {folder.name}")
