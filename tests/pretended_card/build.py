"""Builds the pretended card: stand-ins for the libraries of CUDA that the installed torch and vLLM name.

`python -m tests.pretended_card.build FOLDER` compiles the sources in `library/` into one shared object, with a function
that answers "success" for every other symbol of CUDA that the compiled parts of torch and vLLM leave undefined, and
puts an empty library beside it under each name by which CUDA's libraries are asked for.
"""

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

CARD = "libpretended_card.so"
SOURCES = Path(__file__).parent / "library"

# The names by which the compiled parts of torch, vLLM and Triton ask for CUDA's libraries.
LIBRARIES = (
    "libcuda.so.1",
    "libcudart.so.13",
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcudnn.so.9",
    "libnccl.so.2",
    "libnvidia-ml.so.1",
)

_SYMBOL = re.compile(r"(?:cuda|__cuda|cublas|cudnn|nccl|nvml|cu(?!File|sparse|solver|fft|rand))[A-Z]\w*")
# Functions that are looked up by name at run time stand as texts in these libraries of torch and sources of vLLM, and
# what Triton compiles at run time stands in its source.
_ASKED_BY_NAME = ("torch/lib/libc10_cuda.so", "torch/lib/libcaffe2_nvrtc.so")
_SOURCES = (
    "triton/backends/nvidia/driver.c",
    "vllm/distributed/device_communicators/cuda_wrapper.py",
    "vllm/distributed/device_communicators/pynccl_wrapper.py",
)


def build(folder: Path) -> Path:
    """Compile the pretended card into a folder; returns the library that processes have to preload."""
    folder.mkdir(parents=True, exist_ok=True)
    packages = Path(_folder_of("torch")).parent
    generated = folder / "generated.c"
    generated.write_text(_answers(sorted(_asked_for(packages) - _written())))
    includes = [f"-I{packages / 'nvidia' / part / 'include'}" for part in ("cu13", "nccl")]
    card = folder / CARD
    sources = [*sorted(SOURCES.glob("*.c")), generated]
    _compile(card, *map(str, sources), f"-I{SOURCES}", *includes, "-lpthread", "-ldl")
    # torchvision brings a runtime under a name of its own, which vLLM would find in the process and call.
    brought = [path.name for path in packages.glob("*.libs/libcudart*.so*")]
    for name in (*LIBRARIES, *brought):
        versions = folder / f"{name}.map"
        versions.write_text(f"{name.replace('-', '_')} {{ }};\n")
        library = folder / name
        options = (f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}", "-Wl,--no-as-needed")
        _compile(library, "-xc", "/dev/null", *options, f"-L{folder}", "-lpretended_card", f"-Wl,-rpath,{folder}")
    (folder / "libcuda.so").unlink(missing_ok=True)
    (folder / "libcuda.so").symlink_to("libcuda.so.1")  # what Triton's compiled launcher is linked with
    return card


def _compile(target: Path, *arguments: str) -> None:
    command = ["gcc", "-std=gnu17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-o", str(target), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} failed:\n{done.stderr}")


def _folder_of(package: str) -> str:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"{package} is not installed: the pretended card is built for the gpu extra")
    return str(Path(spec.origin).parent)


def _asked_for(packages: Path) -> set[str]:
    """The symbols of CUDA's libraries that compiled parts of torch, torchvision and vLLM do not define themselves."""
    compiled = [path for package in ("torch", "torchvision", "vllm") for path in (packages / package).rglob("*.so*")]
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", *map(str, compiled)], capture_output=True, text=True, check=False
    )
    undefined = {line.split()[-1].split("@")[0] for line in listed.stdout.splitlines() if " U " in line}
    texts = b"".join((packages / name).read_bytes() for name in _ASKED_BY_NAME)
    named = set(re.findall(r"\x00((?:cu|nvml)[A-Z]\w+)(?=\x00)", texts.decode("latin-1")))
    in_sources = re.findall(
        r"\b(?:cuda|cu|nccl)[A-Z]\w+(?=[(\"])", "".join((packages / name).read_text() for name in _SOURCES)
    )
    return {name for name in undefined | named | set(in_sources) if _SYMBOL.fullmatch(name)}


def _written() -> set[str]:
    """The functions that the sources define by hand, also under the names that CUDA's headers give them."""
    text = "".join(path.read_text() for path in SOURCES.glob("*.c"))
    names = set(re.findall(r"^EXPORT [^(]*?(\w+)\(", text, flags=re.MULTILINE))
    return names | {f"{name}_v2" for name in names}


def _answers(names: list[str]) -> str:
    """C functions that answer "success" (NVML's: "not supported") and count that they were called. A function that
    creates something gives a handle that is not null."""
    lines = [
        "void count_call(const char *kind, const char *name);",
        '#define EXPORT __attribute__((visibility("default")))',
        "static char a_handle[4096];",
    ]
    for name in names:
        body = f'count_call("not written", "{name}");'
        if "Create" in name:
            lines.append(f"EXPORT int {name}(void **made) {{ {body} *made = a_handle; return 0; }}")
        else:
            lines.append(f"EXPORT int {name}(void) {{ {body} return {3 if name.startswith('nvml') else 0}; }}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(build(Path(sys.argv[1]).resolve()))  # noqa: T201
