"""What every interpreter on the pretended card does at its start: computes small operations on the host."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function of pretended_card_computing once a module has been imported."""

    def __init__(self, module: str, function: str) -> None:
        self._module, self._function = module, function

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._function)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, own: importlib.abc.Loader, function: str) -> None:
        self._own, self._function = own, function

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._own.exec_module(module)
        import pretended_card_computing

        getattr(pretended_card_computing, self._function)()


sys.meta_path.insert(0, _AfterImport("torch", "compute_torch"))
sys.meta_path.insert(0, _AfterImport("vllm._custom_ops", "compute_vllm"))
sys.meta_path.insert(0, _AfterImport("vllm.vllm_flash_attn.flash_attn_interface", "compute_vllm"))
