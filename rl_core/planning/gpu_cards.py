"""What is published of GPUs: memory bandwidth, arithmetic in bfloat16, and the link between the GPUs of a machine."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuCard:
    """A kind of GPU.

    Attributes:
        name: How the driver calls it.
        memory_gib: Its memory in GiB, as the driver has it.
        bandwidth: Bytes a second that it reads from its memory.
        flops: Floating-point operations a second with dense bfloat16 matrices.
        link: Bytes a second that it sends to another GPU of its machine.
    """

    name: str
    memory_gib: float
    bandwidth: float
    flops: float
    link: float


CARDS: Final = {
    "a100-40": GpuCard(name="NVIDIA A100-SXM4-40GB", memory_gib=39.6, bandwidth=1.555e12, flops=312e12, link=300e9),
    "a100": GpuCard(name="NVIDIA A100-SXM4-80GB", memory_gib=79.6, bandwidth=2.039e12, flops=312e12, link=300e9),
    "h100": GpuCard(name="NVIDIA H100 80GB HBM3", memory_gib=79.6, bandwidth=3.35e12, flops=989e12, link=450e9),
    "h200": GpuCard(name="NVIDIA H200", memory_gib=140.4, bandwidth=4.8e12, flops=989e12, link=450e9),
    "l40s": GpuCard(name="NVIDIA L40S", memory_gib=45.0, bandwidth=0.864e12, flops=362e12, link=32e9),
}
"""[name on the command line] -> the card. The figures are those of NVIDIA's data sheets: A100 80GB and A100 (2021),
H100 (SXM, 2023), H200 (2024), L40S (2023). They give arithmetic with and without sparsity, here it is without; and
NVLink (PCIe 4.0 for the L40S) in both directions together, here it is one of them."""


def card_named(driver_name: str) -> GpuCard | None:
    """The card that the driver calls by this name; None where its figures are not known."""
    return next((card for card in CARDS.values() if card.name == driver_name), None)
