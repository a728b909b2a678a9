"""Copies tensors to the host's memory, from where they are written while the training goes on."""

from typing import Any

import torch

State = dict[str, Any]

_Key = tuple[torch.device, int, torch.dtype, torch.Size, tuple[int, ...]]


def host_copy(state: State) -> State:
    """A copy of a nested dictionary of tensors and plain values, with all tensors in new memory of the host. It takes
    as many bytes as the tensors: tensors that share their memory, such as tied weights, have one copy."""
    copies: dict[_Key, torch.Tensor] = {}

    def copied(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: copied(part) for name, part in value.items()}
        if not isinstance(value, torch.Tensor):
            return value
        key = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
        if key not in copies:
            copies[key] = value.detach().to("cpu", copy=True)
        return copies[key]

    return {name: copied(value) for name, value in state.items()}
