"""The gaps between torch and its companions, on small fake package trees and on the installed libraries.

Each case is a process of its own: what the startup module does to an interpreter cannot be undone in it.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

STARTUP = Path(__file__).parents[2] / "startup"
LINKED_TO_CUDA = b"\x7fELF\0libc10.so\0libtorch_cuda.so\0"
LINKED_TO_CPU = b"\x7fELF\0libc10.so\0libtorch_cpu.so\0"

FAKE_TORCH = """
defined = []
class library:
    class Library:
        def __init__(self, namespace, kind):
            self.name = f"{namespace}-{kind}"
        def define(self, schema):
            defined.append(f"{self.name}: {schema}")
"""

REPORT = """
import json, sys
sys.path[:0] = [{startup!r}, {tree!r}]
import sightline_startup
sightline_startup.close_binary_gaps({tree!r})
import torchvision
print(json.dumps({{
    "hidden": sorted(name for name, module in sys.modules.items() if module is None),
    "watching": sightline_startup.TorchvisionFinder in sys.meta_path,
    "defined": torchvision.defined,
}}))
"""


def make_tree(tree: Path, *, cuda_torch: bool, library: bytes) -> None:
    files: dict[str, bytes] = {
        "torch/__init__.py": FAKE_TORCH.encode(),
        "torch/lib/libtorch_cpu.so": b"",
        "torchaudio/__init__.py": b"",
        "torchaudio/lib/_torchaudio.abi3.so": library,
        "torchaudio/lib/libtorchaudio.abi3.so": library + bytes(1000),
        "torchcodec/__init__.py": b"",
        "torchcodec/libtorchcodec_core8.so": library,
        "torchvision/__init__.py": b"import torch\ndefined = list(torch.defined)\n",
        "torchvision/_C.so": library,
    }
    if cuda_torch:
        files["torch/lib/libtorch_cuda.so"] = b""
    for name, content in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def run_python(code: str, *options: str) -> str:
    command = [sys.executable, *options, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def report_on(tree: Path) -> dict[str, object]:
    # -S: no site-packages, so only the fake tree and the module under test are there.
    return json.loads(run_python(REPORT.format(startup=str(STARTUP), tree=str(tree)), "-S"))


def test_a_cpu_torch_beside_cuda_companions_is_helped(tmp_path: Path) -> None:
    make_tree(tmp_path, cuda_torch=False, library=LINKED_TO_CUDA)
    assert report_on(tmp_path) == {
        "hidden": ["torchaudio", "torchcodec"],
        "watching": True,
        "defined": [
            "torchvision-DEF: nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
            "torchvision-DEF: qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        ],
    }


def test_a_cpu_torch_beside_cpu_companions_is_left_alone(tmp_path: Path) -> None:
    make_tree(tmp_path, cuda_torch=False, library=LINKED_TO_CPU)
    report = report_on(tmp_path)
    assert (report["hidden"], report["defined"]) == ([], [])


@pytest.mark.parametrize("torch", ["of CUDA", "none"])
def test_an_environment_with_a_cuda_torch_or_without_one_is_left_alone(tmp_path: Path, torch: str) -> None:
    make_tree(tmp_path, cuda_torch=torch == "of CUDA", library=LINKED_TO_CUDA)
    if torch == "none":
        shutil.rmtree(tmp_path / "torch/lib")
    assert report_on(tmp_path) == {"hidden": [], "watching": False, "defined": []}


def test_companions_that_are_not_installed_are_no_error(tmp_path: Path) -> None:
    (tmp_path / "torch/lib").mkdir(parents=True)
    code = f"""
import sys
sys.path.insert(0, {str(STARTUP)!r})
import sightline_startup
sightline_startup.close_binary_gaps({str(tmp_path)!r})
import importlib.util
print(importlib.util.find_spec("torchvision"), importlib.util.find_spec("torchaudio"))
"""
    assert run_python(code, "-S").strip() == "None None"


def test_a_second_import_of_torchvision_declares_nothing_again(tmp_path: Path) -> None:
    make_tree(tmp_path, cuda_torch=False, library=LINKED_TO_CUDA)
    code = REPORT.replace("import torchvision\n", "import importlib, torchvision\nimportlib.reload(torchvision)\n")
    report = json.loads(run_python(code.format(startup=str(STARTUP), tree=str(tmp_path)), "-S"))
    assert len(report["defined"]) == 2


def test_the_start_of_an_interpreter_imports_nothing_and_reads_one_small_library_a_package(tmp_path: Path) -> None:
    make_tree(tmp_path, cuda_torch=False, library=LINKED_TO_CUDA)
    code = f"""
import json, os, sys
sys.path.insert(0, {str(STARTUP)!r})
loaded, opened = set(sys.modules), []
import sightline_startup
sys.addaudithook(lambda event, details: opened.append(details[0]) if event == "open" else None)
sightline_startup.close_binary_gaps({str(tmp_path)!r})
imported = [name for name, module in sys.modules.items() if module and name not in loaded]
print(json.dumps([imported, opened]))
"""
    libraries = [
        tmp_path / name for name in ("torchaudio/lib/_torchaudio.abi3.so", "torchcodec/libtorchcodec_core8.so")
    ]
    assert json.loads(run_python(code, "-S")) == [["sightline_startup"], [str(library) for library in libraries]]


def test_the_installed_copy_is_the_one_in_the_sources() -> None:
    installed = run_python("import sightline_startup; print(sightline_startup.__file__)", "-I").strip()
    assert Path(installed).parent != STARTUP, "it must lie in site-packages, where its .pth file is read"
    assert Path(installed).read_text() == (STARTUP / "sightline_startup.py").read_text()


@pytest.mark.parametrize(
    "statement",
    [
        "from transformers import Qwen2_5_VLProcessor, Qwen3VLProcessor; import torchvision",
        pytest.param("from vllm import LLM", marks=pytest.mark.slow),
    ],
)
def test_libraries_import_in_a_process_that_knows_nothing_of_sightline(statement: str, tmp_path: Path) -> None:
    code = f"{statement}\nimport sys; print('imported', any(name.startswith('rl_core') for name in sys.modules))"
    assert run_python(code, "-I").splitlines()[-1] == "imported False"
