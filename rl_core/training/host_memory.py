"""What a trainer keeps in the host's memory while it is not needed on the device (`trainer.offload`)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from rl_core.distributed.shards import sharded_parts


def empty_on_host(like: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """An uninitialised tensor of the same shape, and sharded in the same way, in the host's memory; pinned if `like` is
    on a GPU, because copies from and to pinned memory are several times as fast."""
    return torch.empty_like(
        like,
        dtype=dtype or like.dtype,
        device="cpu",
        pin_memory=like.is_cuda,
        requires_grad=False,
        memory_format=torch.contiguous_format,
    )


class HostWeights:
    """The parameters of a module that are in the host's memory, except within `on_device`. Frozen ones are not copied
    back, and buffers stay on the device. A sharded module is moved as FSDP2 does it, with its buffers."""

    def __init__(self, module: nn.Module) -> None:
        self._places: list[tuple[nn.Parameter, torch.device, torch.Tensor]] = []
        self._sharded: nn.Module | None = None
        if any(True for _ in sharded_parts(module)):
            self._sharded, self._device = module, next(module.parameters()).device
            module.to("cpu")
            return
        for parameter in module.parameters():
            host = empty_on_host(parameter)
            self._places.append((parameter, parameter.device, host))
            host.copy_(parameter.data)
            parameter.data = host

    @contextmanager
    def on_device(self) -> Iterator[None]:
        """Have the parameters on the device during a `with` block; trained ones are copied back at its end."""
        if self._sharded is not None:
            self._sharded.to(self._device)
            try:
                yield
            finally:
                self._sharded.to("cpu")
            return
        for parameter, device, host in self._places:
            parameter.data = host.to(device, copy=True, non_blocking=True)
        try:
            yield
        finally:
            for parameter, _, host in self._places:
                if parameter.requires_grad:
                    host.copy_(parameter.data)
                parameter.data = host
