"""An NVIDIA card as far as vLLM's configuration asks for one."""

from vllm.platforms.cuda import NonNvmlCudaPlatform
from vllm.platforms.interface import DeviceCapability


class H100(NonNvmlCudaPlatform):
    """vLLM's own platform for CUDA, with the answers of a card."""

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:
        return DeviceCapability(major=9, minor=0)

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return "NVIDIA H100 80GB HBM3"

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        return int(79.1 * 2**30)

    @classmethod
    def is_cumem_allocator_available(cls) -> bool:
        return True

    @classmethod
    def is_sleep_mode_available(cls) -> bool:
        return True

    @classmethod
    def device_count(cls) -> int:
        return 1
