"""A pretended pool of device memory that a sleeping engine drops."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class MemoryPool(TorchDispatchMode):
    """A `with` block that remembers the memory of the tensors that are made in it."""

    def __init__(self) -> None:
        super().__init__()
        self._made: list[torch.UntypedStorage] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Compute, and keep the memory of results that are no views of arguments (`torch.tensor` lifts what it has
        made). Pinned memory is the host's, and there is none without a GPU."""
        if kwargs and kwargs.get("pin_memory"):
            return func(*args, **(kwargs | {"pin_memory": False}))
        is_lifted = func is torch.ops.aten.lift_fresh.default
        given = set() if is_lifted else {storage.data_ptr() for storage in _storages([args, kwargs])}
        result = func(*args, **(kwargs or {}))
        self._made += [storage for storage in _storages(result) if storage.data_ptr() not in given]
        return result

    def drop(self) -> None:
        """Take the content away, as vLLM's sleep of level 2 does. Every byte becomes 0x7F: large integers, and
        floating-point numbers that are finite and wrong."""
        for storage in self._made:
            storage.fill_(0x7F)


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
