"""The name of the device that torch computes on, for records and messages."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def device_name(device: "torch.device") -> str:
    """The name of the card, or "CPU"."""
    if device.type == "cpu":
        return "CPU"
    import torch  # records are read without it

    return torch.cuda.get_device_name(device)
