"""Copies tensors to the host's memory, from where they are written while the training goes on."""

from typing import Any

import torch

from rl_core.distributed.shards import local_part

State = dict[str, Any]

_Key = tuple[torch.device, int, torch.dtype, torch.Size, tuple[int, ...]]


class HostCopies:
    """Copies of states, whose memory is used again for the next copy of the same state: new memory is cleared by the
    system page by page, which can take longer than copying."""

    def __init__(self) -> None:
        self._held: dict[str, torch.Tensor] = {}

    def of(self, name: str, state: State) -> State:
        """A copy of a nested dictionary of tensors and plain values; it overwrites an earlier one of this name and
        form. Tensors that share their memory, such as tied weights, have one copy. Of a sharded tensor, this rank's
        part is copied."""
        copies: dict[_Key, torch.Tensor] = {}

        def copied(path: str, value: Any) -> Any:
            if isinstance(value, dict):
                return {key: copied(f"{path}/{key}", part) for key, part in value.items()}
            if not isinstance(value, torch.Tensor):
                return value
            key = (value.device, local_part(value).data_ptr(), value.dtype, value.shape, value.stride())
            if key not in copies:
                copies[key] = self._copy(path, value.detach())
            return copies[key]

        return {key: copied(f"{name}/{key}", value) for key, value in state.items()}

    def free(self) -> None:
        """Give the memory back, unless a copy is still used elsewhere."""
        self._held.clear()

    def _copy(self, path: str, tensor: torch.Tensor) -> torch.Tensor:
        held = self._held.get(path)
        if held is None or _form(held) != _form(tensor):
            held = self._held[path] = torch.empty_like(tensor, device="cpu")
        local_part(held).copy_(local_part(tensor))
        return held


def _form(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size, tuple[int, ...]]:
    return tensor.dtype, tensor.shape, tensor.stride()
