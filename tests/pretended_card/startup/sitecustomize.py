"""What every interpreter of the rehearsal's environment does at its start: where there is a pretended card, it computes
operations on the host. A .pth file puts this folder on the path; this module is run after all .pth files, so that its
finder comes before those of the product."""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function of pretended_card_computing once a module has been imported."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in _FUNCTIONS or name in self._seen:
            return None
        self._seen.add(name)
        spec = importlib.util.find_spec(name)  # what the finders behind this one find
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, own: importlib.abc.Loader) -> None:
        self._own = own

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._own.exec_module(module)
        import pretended_card_computing

        getattr(pretended_card_computing, _FUNCTIONS[module.__name__])(module)


_FUNCTIONS = {
    "torch": "compute_torch",
    "vllm._custom_ops": "compute_vllm_operations",
    "vllm.vllm_flash_attn.flash_attn_interface": "compute_vllm_operations",
    "vllm.model_executor.layers.rotary_embedding.mrope": "compute_vllm_functions",
    "vllm.v1.attention.ops.triton_prefill_attention": "compute_vllm_functions",
    "vllm.v1.attention.ops.triton_reshape_and_cache_flash": "compute_vllm_functions",
    "vllm.v1.attention.ops.triton_unified_attention": "compute_vllm_functions",
    "vllm.vllm_flash_attn.ops.triton.rotary": "compute_vllm_functions",
}
if "PRETENDED_CARD_STATE" in os.environ:
    sys.meta_path.insert(0, _AfterImport())
