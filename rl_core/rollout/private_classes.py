"""Models of vLLM that are classes of transformers, of classes of their own.

vLLM runs a model for which it has no class as transformers' one, and puts its compiler into that class: other bases,
`__init__` and `__call__`. The trainer has the same class in the same process; its model could no longer compute, and
no other one be made. Here vLLM's compiler gets a class that is derived from it.
"""

from typing import Any

from vllm.compilation.decorators import support_torch_compile
from vllm.config import VllmConfig
from vllm.model_executor.models.transformers.base import Base

_init = Base.__init__


def use_private_classes() -> None:
    """From now on, in all engines of this process."""
    Base._decorate_cls_for_torch_compile = _derive
    Base.__init__ = _init_with_private_classes


def _derive(model: Base, cls: type, **arguments: Any) -> None:
    """In place of `_decorate_cls_for_torch_compile`, which vLLM calls before it makes its model of the class."""
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}  # transformers finds outputs by them
    private = type(cls.__name__, (cls,), {**names, "__init__": lambda _: None})  # it is given to a model that is made
    support_torch_compile(**arguments)(private)
    vars(model).setdefault("_private_classes", {})[cls] = private


def _init_with_private_classes(model: Base, *, vllm_config: VllmConfig, prefix: str = "") -> None:
    _init(model, vllm_config=vllm_config, prefix=prefix)
    for module in model.modules():
        private = model._private_classes.get(type(module))
        if private is not None:
            module.__class__ = private
            private.__init__(module, vllm_config=vllm_config)  # what the compiler needs
