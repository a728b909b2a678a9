"""Small operations computed on the host, whose memory the pretended card's memory is.

An operation of torch on the card does what it always does: it chooses its kernel, takes its memory and launches the
kernel, which the pretended card counts and does not execute. Then the same operation is computed by torch's CPU kernel
on the same memory. Triton's kernels of vLLM's runner and sampler are executed by Triton's interpreter in the same way.
Nothing is computed while a stream is captured, nor for more than `PRETENDED_CARD_COMPUTE_MIB`, so the products of
compiled models, graphs and large tensors are not numbers.
"""

import atexit
import ctypes
import dataclasses
import functools
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from pretended_card_plain_forms import PLAIN_FORMS, PLAIN_FUNCTIONS
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

_MOST_BYTES = int(float(os.environ.get("PRETENDED_CARD_COMPUTE_MIB", "256")) * 2**20)
# Inductor fills this much, the card's L2 cache, before each of hundreds of timings.
_BYTES_OF_THE_CACHE = 50 * 2**20
# vLLM's second model runner with its sampler, and the normalisation of pixels.
_INTERPRETED = ("vllm.v1.worker.gpu.", "vllm.model_executor.layers.fusion.mm_input_norm")

# What these do is done by the card itself: taking memory, naming it, reading a number from it.
_DONE = {
    "aten::_efficient_attention_backward",  # computed as a whole by the operation that calls it
    "aten::_efficient_attention_forward",
    "aten::_local_scalar_dense",
    "aten::_pin_memory",
    "aten::empty.memory_format",
    "aten::empty_strided",
    "aten::empty_quantized",
    "aten::is_pinned",
    "aten::record_stream",
    "aten::resize_",
    "aten::set_",
    "aten::set_.source_Storage",
    "aten::set_.source_Storage_storage_offset",
    "aten::set_.source_Tensor",
}
# The card's own kernel is not asked: where nothing else is said, because the shape of its result depends on numbers.
_ON_THE_HOST_ALONE = {
    "aten::_unique2",
    "aten::bincount",
    "aten::index.Tensor",  # with a mask
    "aten::masked_select",
    "aten::nonzero",
    "aten::pow.Scalar",  # its kernel passes a number on in a form that no Python function can take
    "aten::prod",  # compiled at run time by NVRTC, which does not work with a pretended driver
    "aten::prod.dim_int",
    "aten::repeat_interleave.Tensor",
    "aten::unique_consecutive",
    "aten::unique_dim",
}
# These read what they need of a cache of keys and values, however large that is.
_WITH_A_CACHE = {"_C_cache_ops::reshape_and_cache_flash", "_vllm_fa3_C::fwd"}
_FILLING = {"aten::fill_.Scalar", "aten::zero_"}
# These have one kernel for all devices, which launches others without asking for them by name.
_FOR_ALL_DEVICES = {"aten::copy_"}

_computed_names: dict[str, torch.library.Library] = {}  # kept, because an operation's kernel goes with its library
_left_out: Counter[str] = Counter()


def compute_torch(_torch: ModuleType) -> None:
    """Have torch's operations on the card computed on the host from now on, in this process."""
    if _MOST_BYTES == 0:
        return
    # Its kernels are chosen from answers that the pretended library does not give.
    torch.backends.cudnn.enabled = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::") and name not in _DONE:
            _compute(name)
    _interpret_triton()
    if "PRETENDED_CARD_STATE" in os.environ:
        atexit.register(_write_left_out, Path(os.environ["PRETENDED_CARD_STATE"], f"left-out-{os.getpid()}.tsv"))


def compute_vllm_operations(_module: ModuleType) -> None:
    """Have those of vLLM's compiled operations computed on the host that have a plain form and have been loaded."""
    if _MOST_BYTES == 0:
        return
    for name in PLAIN_FORMS:
        if not name.startswith("aten::") and name not in _computed_names:
            _compute(name)


def compute_vllm_functions(module: ModuleType) -> None:
    """Have a function of vLLM around a kernel of Triton computed in its plain form after the kernel's launch."""
    name, plain = PLAIN_FUNCTIONS[module.__name__]
    real = getattr(module, name)

    @functools.wraps(real)
    def function(*args: Any, **kwargs: Any) -> Any:
        result = real(*args, **kwargs)
        if _MOST_BYTES and not torch.cuda.is_current_stream_capturing() and not torch.compiler.is_compiling():
            with torch.no_grad(), _plain_torch():
                plain(*tree_map(_on_the_host, (result, *args)), **tree_map(_on_the_host, kwargs))
        return result

    setattr(module, name, function)


def _compute(name: str) -> None:
    namespace, _, operator = name.partition("::")
    packet, _, overload = operator.partition(".")
    operation = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload or "default", None)
    if operation is None or not _changes_memory(operation):
        return
    if name not in _FOR_ALL_DEVICES and not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA"):
        return
    library = torch.library.Library(namespace, "IMPL")
    library.impl(name, _computed(operation), "CUDA", with_keyset=True, allow_override=True)
    _computed_names[name] = library


def _changes_memory(operation: torch._ops.OpOverload) -> bool:
    """Whether it writes to what it is given or returns something new, and not only another view of it."""
    schema = operation._schema
    aliases = [argument.alias_info for argument in (*schema.arguments, *schema.returns) if argument.alias_info]
    return any(alias.is_write for alias in aliases) or not any(value.alias_info for value in schema.returns)


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor on the card as a tensor on the CPU: the same numbers, not a copy."""
    if tensor.device.type != "cuda":
        return tensor
    storage = tensor.untyped_storage()
    size = storage.nbytes() // tensor.dtype.itemsize
    if size == 0 or tensor.numel() == 0:
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    memory = (ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr())
    flat = torch.frombuffer(memory, dtype=tensor.dtype, count=size)
    return flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _on_the_host(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return host_view(value)
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, torch.Generator):
        return None
    return value


@contextmanager
def _plain_torch() -> Iterator[None]:
    """Without gradients, and without the modes around a call, such as a default device."""
    with torch._C._AutoDispatchBelowAutograd(), torch._C.DisableTorchFunction():
        yield


def _each(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple | list) else [results]


def _bytes_of(values: Any) -> int:
    tensors = [value for value in tree_flatten(values)[0] if isinstance(value, torch.Tensor)]
    return sum(tensor.numel() * tensor.dtype.itemsize for tensor in tensors)


def _computed(operation: torch._ops.OpOverload) -> Callable[..., Any]:
    name = operation.name()
    real = torch.library.get_kernel(name, "CUDA")
    is_on_the_host_alone = name in _ON_THE_HOST_ALONE
    has_results = not any(argument.alias_info for argument in operation._schema.returns)
    most_bytes = math.inf if name in _WITH_A_CACHE or is_on_the_host_alone else _MOST_BYTES
    has_form = name in PLAIN_FORMS or torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CPU")
    tensors = [at for at, argument in enumerate(operation._schema.arguments) if str(argument.type) == "Tensor"]

    def kernel(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        args = _without_numbers(args, tensors)
        size = _bytes_of((args, kwargs))
        is_wanted = size <= most_bytes and not (name in _FILLING and size == _BYTES_OF_THE_CACHE)
        computes = is_wanted and not torch.cuda.is_current_stream_capturing()
        if is_on_the_host_alone and computes:
            with _plain_torch():
                host = _host_call(operation, args, kwargs)
                return tree_map(lambda value: value.to("cuda") if isinstance(value, torch.Tensor) else value, host)
        results = real.call_boxed(keys, *args, **kwargs)
        if isinstance(results, list):  # FlashAttention's, whose last ones may be no tensors
            results = [torch.empty(0) if value is None else value for value in results]
        if not (computes and has_form):
            _left_out[name] += 1
            return results
        with _plain_torch():
            host = _host_call(operation, args, kwargs)
            if has_results:
                for result, value in zip(_each(results), _each(host), strict=True):
                    if isinstance(value, torch.Tensor) and result.device.type == "cuda":
                        host_view(result).copy_(value)
        return results

    return kernel


def _without_numbers(args: tuple[Any, ...], tensors: list[int]) -> tuple[Any, ...]:
    """The arguments with a tensor wherever a number stands in the place of one, which has no influence on the type of
    the result next to a tensor of its kind."""
    numbers = [at for at in tensors if at < len(args) and isinstance(args[at], int | float)]
    if not numbers:
        return args
    is_double = any(isinstance(value, torch.Tensor) and value.dtype == torch.float64 for value in args)
    changed = list(args)
    for at in numbers:
        is_float = isinstance(args[at], float)
        dtype = (torch.float64 if is_double else torch.float32) if is_float else None
        changed[at] = torch.tensor(args[at], dtype=dtype, device="cpu")
    return tuple(changed)


def _host_call(operation: torch._ops.OpOverload, args: Any, kwargs: Any) -> Any:
    values, spec = tree_flatten((args, kwargs))
    host_args, host_kwargs = tree_unflatten([_on_the_host(value) for value in values], spec)
    return PLAIN_FORMS.get(operation.name(), operation)(*host_args, **host_kwargs)


def _interpret_triton() -> None:
    from triton.runtime import interpreter, jit

    class HostGrid(interpreter.GridExecutor):
        """Gives the interpreter the card's memory itself, where it would copy it to the host and back."""

        def _init_args_hst(self, args_dev: Any, kwargs: Any) -> Any:
            return tree_map(_on_the_host, list(args_dev)), tree_map(_on_the_host, dict(kwargs))

        def _restore_args_dev(self, args_dev: Any, args_hst: Any, kwargs: Any, kwargs_hst: Any) -> None:
            pass

    # Checking each sum for an overflow takes most of the interpreter's time.
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    real = jit.JITFunction.run
    interpreted: dict[int, Any] = {}  # by identity, because a kernel's hash is that of its source

    def of(function: Any) -> Any:
        if id(function) not in interpreted:
            interpreted[id(function)] = interpreter.InterpretedFunction(function.fn)
        return interpreted[id(function)]

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        compiled = real(self, *args, grid=grid, warmup=warmup, **kwargs)
        if warmup or torch.cuda.is_current_stream_capturing() or not self.fn.__module__.startswith(_INTERPRETED):
            return compiled
        plain = of(self)
        HostGrid(plain.rewrite(), plain.arg_names, grid)(*args, **kwargs)
        return compiled

    def inside(self: Any, *args: Any, **kwargs: Any) -> Any:
        """A function that an interpreted kernel calls."""
        scope = interpreter._patch_lang(self.fn)
        try:
            return of(self).rewrite()(*args, **kwargs)
        finally:
            scope.restore()

    jit.JITFunction.run = run
    jit.JITFunction.__call__ = inside


def _write_left_out(path: Path) -> None:
    path.write_text("".join(f"{times}\t{name}\n" for name, times in _left_out.most_common()))
