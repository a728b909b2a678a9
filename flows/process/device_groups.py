"""Groups of devices, each of which one training has for itself: GPUs of this machine, or a Ray cluster."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

_GPUS = re.compile(r"\d+(,\d+)*")
_CLUSTER = re.compile(r"[^\s:/,]+:\d+")


def check_groups(groups: Sequence[str]) -> None:
    """Raises ValueError if a group is neither numbers of GPUs nor the address of a cluster, or if two groups share a
    device."""
    for group in groups:
        if not _GPUS.fullmatch(group) and not _CLUSTER.fullmatch(group):
            raise ValueError(
                f"{group!r} is no group of devices: name GPUs by their numbers, such as 0,1, or a Ray cluster by its "
                f"address, HOST:PORT"
            )
    times = Counter(device for group in groups for device in _devices(group))
    if shared := [device for device, number in times.items() if number > 1]:
        raise ValueError(
            f"{', '.join(shared)} would be given to two trainings at once: each device belongs to one group"
        )


def environment_of(group: str) -> Mapping[str, str]:
    """The variables with which a process uses this group alone: a config with `cluster.address: auto` joins the cluster
    that RAY_ADDRESS names."""
    return {"CUDA_VISIBLE_DEVICES": group} if _GPUS.fullmatch(group) else {"RAY_ADDRESS": group}


def _devices(group: str) -> list[str]:
    """One name for each device that nobody else may have."""
    return [f"GPU {number}" for number in group.split(",")] if _GPUS.fullmatch(group) else [group]
