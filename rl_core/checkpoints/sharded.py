"""Saves and loads model and optimizer tensors with torch.distributed.checkpoint: each worker writes its shards, and any
number of workers can read them.

Loaded tensors equal saved ones to the bit, and equal states give equal files. Loading runs no code: the metadata is
unpickled with a list of allowed classes, and plain values with `weights_only`.
"""

import io
import pickle
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import ReadItem
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from rl_core.checkpoints.hashed_writer import HashedWriter
from rl_core.checkpoints.host_copy import State
from rl_core.digests import FileRecord
from rl_core.files import relative_name

_METADATA_CLASSES = {
    ("pathlib", "PosixPath"),
    ("torch", "Size"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    *(
        ("torch.distributed.checkpoint.metadata", name)
        for name in (
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorProperties",
            "TensorStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        )
    ),
}


class MismatchedState(ValueError):
    """A checkpoint does not fit the model or optimizer that it is loaded into."""


def save_sharded(folder: Path, state: State, *, process_group: ProcessGroup | None = None) -> Mapping[str, FileRecord]:
    """Write a nested dictionary of tensors (DTensors too) and plain values into `folder`. Returns the files that this
    worker has written, without the metadata.

    Every worker of the process group calls it with its own shards. Without a process group, this process is the only
    worker, even if torch has a default group (vLLM in this process creates one).
    """
    writer = HashedWriter(folder)
    with _plain_library():
        save(state, storage_writer=writer, process_group=process_group, no_dist=process_group is None)
    return writer.written


def load_sharded(folder: Path, state: State, *, process_group: ProcessGroup | None = None) -> None:
    """Load the contents of `folder` into `state`: tensors are filled in place, other values are replaced. Every worker
    of the process group calls it.

    Raises:
        MismatchedState: a name is missing on one side, or a shape or number format differs.
        pickle.UnpicklingError: the files contain a class that is not allowed; no code was run.
        ValueError: the metadata names a file outside `folder`.
    """
    _check_fit(_Reader(folder).read_metadata(), state, folder)
    with _plain_library():
        load(
            state,
            storage_reader=_Reader(folder),
            planner=_Planner(),
            process_group=process_group,
            no_dist=process_group is None,
        )


def model_state(model: nn.Module, *, trained_only: bool = False) -> State:
    """Parameters and persistent buffers by name; with `trained_only` without frozen parameters, for a model whose base
    is stored elsewhere."""
    return dict(get_model_state_dict(model, options=StateDictOptions(ignore_frozen_params=trained_only)))


def load_model_state(
    folder: Path,
    model: nn.Module,
    *,
    trained_only: bool = False,
    elsewhere: State | None = None,
    process_group: ProcessGroup | None = None,
) -> None:
    """Load what `save_sharded(folder, model_state(model, trained_only=...))` wrote into `model`; a tensor whose name is
    in `elsewhere` is loaded into that tensor instead. Raises as `load_sharded`."""
    elsewhere = elsewhere or {}
    state = model_state(model, trained_only=trained_only) | elsewhere
    load_sharded(folder, state, process_group=process_group)
    own = {name: value for name, value in state.items() if name not in elsewhere}
    set_model_state_dict(model, own, options=StateDictOptions(strict=not (trained_only or elsewhere)))


def optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Optimizer state by parameter name ({"layer.weight": {"step": ..., "exp_avg": ...}}).

    A parameter that never had a gradient has no entry. torch's own `get_optimizer_state_dict` would take an optimizer
    step to create it, which changes the bias correction of the optimizer in use.
    """
    named = model.named_parameters()
    return {name: _canonical(optimizer.state[parameter]) for name, parameter in named if parameter in optimizer.state}


def _canonical(entries: State) -> State:
    """The same entries in the order of their names, with interned names, so that equal states make equal files. Entries
    from the checkpoint of several ranks have another order than torch's own, and pickle writes equal strings again if
    they are different objects."""
    return {sys.intern(name): entries[name] for name in sorted(entries)}


def load_optimizer_state(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    in_host_memory: bool = False,
    process_group: ProcessGroup | None = None,
) -> None:
    """Load what `save_sharded(folder, optimizer_state(model, optimizer))` wrote into `optimizer`; parameters without an
    entry there have none afterwards. With `in_host_memory`, moments are in the host's memory (pinned, if their
    parameter is on a GPU). Raises as `load_sharded`."""
    state = _empty_optimizer_state(_Reader(folder).read_metadata(), model, folder, in_host_memory=in_host_memory)
    load_sharded(folder, state, process_group=process_group)
    # Not with load_state_dict, which casts the state of a parameter to the parameter's number format.
    optimizer.state.clear()
    optimizer.state.update({parameter: state[name] for name, parameter in model.named_parameters() if name in state})


def _empty_optimizer_state(metadata: Metadata, model: nn.Module, folder: Path, *, in_host_memory: bool) -> State:
    """Tensors for the entries of the checkpoint. An entry with the shape of its parameter is placed like the parameter,
    or in the host's memory; any other (the step count) is a whole tensor on the parameter's device."""
    parameters = dict(model.named_parameters())
    state: State = {}
    for key, stored in metadata.state_dict_metadata.items():
        name, _, entry = key.rpartition(".")
        if name not in parameters or not isinstance(stored, TensorStorageMetadata):
            raise MismatchedState(f"{folder} has optimizer state {key!r}, for which the model has no parameter")
        parameter, dtype = parameters[name].detach(), stored.properties.dtype
        if stored.size == parameter.shape and in_host_memory:
            value = torch.zeros_like(parameter, dtype=dtype, device="cpu", pin_memory=parameter.is_cuda)
        elif stored.size == parameter.shape:
            value = torch.zeros_like(parameter, dtype=dtype)
        else:
            value = torch.zeros(stored.size, dtype=dtype, device=parameter.device)
        state.setdefault(name, {})[entry] = value
    return state


def _check_fit(metadata: Metadata, state: State, folder: Path) -> None:
    """DCP itself ignores entries that only the checkpoint has, and casts silently."""
    planner = _Planner()
    planner.set_up_planner(state, metadata, is_coordinator=True)
    stored, wanted = metadata.state_dict_metadata, planner.state_dict
    problems = [f"{name} is not in the checkpoint" for name in wanted if name not in stored]
    problems += [f"{name} is only in the checkpoint" for name in stored if name not in wanted]
    for name in wanted.keys() & stored.keys():
        saved, here = _form_of_record(stored[name]), _form_of_value(wanted[name])
        if saved != here:
            problems.append(f"{name} was saved as {saved} and is {here} here")
    if problems:
        shown = "\n  ".join(sorted(problems)[:20])
        raise MismatchedState(f"{folder} does not fit ({len(problems)} difference(s)):\n  {shown}")


def _form_of_record(record: object) -> str:
    return _form(record.properties.dtype, record.size) if isinstance(record, TensorStorageMetadata) else "a plain value"


def _form_of_value(value: object) -> str:
    return _form(value.dtype, value.shape) if isinstance(value, torch.Tensor) else "a plain value"


def _form(dtype: torch.dtype, shape: torch.Size) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"


class _Reader(FileSystemReader):
    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        path = self._get_metadata_path(kwargs.get("rank"))
        with self.fs.create_stream(path, "rb") as file:
            metadata = _MetadataUnpickler(file).load()
        if not isinstance(metadata, Metadata):
            raise pickle.UnpicklingError(f"{path} does not hold checkpoint metadata")
        for place in (metadata.storage_data or {}).values():
            relative_name(place.relative_path)
        return metadata


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if not is_dtype and (module, name) not in _METADATA_CLASSES:
            raise pickle.UnpicklingError(f"checkpoint metadata refers to {module}.{name}, which is not allowed there")
        return super().find_class(module, name)


class _Planner(DefaultLoadPlanner):
    """Reads plain values without running code; the library's planner would unpickle anything."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        plain = torch.load(value, weights_only=True)
        set_element(self.original_state_dict, self.mappings[read_item.dest_index.fqn], plain)


@contextmanager
def _plain_library() -> Iterator[None]:
    """Without DCP's warning about a missing process group. Raises the original error, such as a full disk, instead of
    DCP's wrapper, a BaseException that handlers of OSError would not catch."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        try:
            yield
        except CheckpointException as wrapper:
            error, _ = next(iter(wrapper.failures.values()))
            raise _disk_error(error) or error from None


def _disk_error(error: BaseException) -> OSError | None:
    """The OSError that caused `error`; torch.save hides it behind a RuntimeError about file positions."""
    link: BaseException | None = error
    while link is not None and not isinstance(link, OSError):
        link = link.__cause__ or link.__context__
    return link
