"""The way of the weights from the ranks that train to the workers that generate, which are other processes."""

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from rl_core.distributed.collectives import buckets
from rl_core.distributed.ranks import meeting_store

_BUCKET_BYTES: Final = 64 << 20
"""Weights are sent together up to this size: a broadcast of a small one takes no less time than of a large one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkPlace:
    """One end of a link between `size` processes: number 0 sends. They find each other at an address of the sender's
    machine (`tcp://host:port`). `seconds` is the longest time until all have come, and of a broadcast."""

    number: int
    size: int
    meeting: str
    seconds: float


class WeightLink:
    """A broadcast of weights from one process to others, over gloo, or over NCCL between GPUs, in a process group of
    its own: torch's default one belongs to the ranks, or to vLLM."""

    def __init__(self, place: LinkPlace, device: torch.device) -> None:
        """Meet the others. Raises RuntimeError if they do not come in time."""
        timeout = timedelta(seconds=place.seconds)
        store = meeting_store(place.meeting, number=place.number, size=place.size, timeout=timeout)
        self._device = device
        self._group: Any  # torch's stubs do not know `broadcast` of either class
        if device.type == "cuda":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timeout
            self._group = dist.ProcessGroupNCCL(store, place.number, place.size, options)
        else:
            self._group = dist.ProcessGroupGloo(store, place.number, place.size, timeout)

    def send(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Send every weight with its name, bucket by bucket; no more than a bucket is held besides the weights."""
        for bucket in buckets(weights, size_of=lambda named: named[1].nbytes, most=_BUCKET_BYTES):
            self._send_bytes(pickle.dumps([(name, weight.dtype, weight.shape) for name, weight in bucket]))
            self._broadcast(torch.cat([_as_bytes(weight) for _, weight in bucket]))
        self._send_bytes(pickle.dumps([]))

    def receive(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the weights that `send` sends, in its order."""
        while header := pickle.loads(self._receive_bytes()):  # noqa: S301 - our own
            sizes = [dtype.itemsize * shape.numel() for _, dtype, shape in header]
            data = torch.empty(sum(sizes), dtype=torch.uint8, device=self._device)
            self._broadcast(data)
            for (name, dtype, shape), part in zip(header, torch.split(data, sizes), strict=True):
                # A part may begin anywhere in the bucket, and a view needs an address that fits its numbers.
                yield name, part.clone().view(dtype).view(shape)

    def _send_bytes(self, data: bytes) -> None:
        self._broadcast(torch.tensor([len(data)], device=self._device))
        self._broadcast(torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self._device))

    def _receive_bytes(self) -> bytes:
        length = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._broadcast(length)
        data = torch.empty(int(length), dtype=torch.uint8, device=self._device)
        self._broadcast(data)
        return data.cpu().numpy().tobytes()

    def _broadcast(self, data: torch.Tensor) -> None:
        self._group.broadcast(data, 0).wait()


def _as_bytes(weight: torch.Tensor) -> torch.Tensor:
    return weight.detach().contiguous().view(-1).view(torch.uint8)
