"""vLLM on a pretended NVIDIA card: what it chooses for the engine arguments of a model.

`python -m tests.rl_core.rollout.pretended_cuda FOLDER FILE` writes it to a JSON file for a model's folder. It is a
process of its own, because it replaces vLLM's platform.
"""

import json
import os
import sys
import traceback
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from rl_core.distributed.place import RankPlace
from rl_core.distributed.ranks import WHOLE, GeneratorRanks
from rl_core.rollout.vllm_process import prepare_process

COMPILED = (
    "vllm._C_stable_libtorch",
    "vllm._moe_C_stable_libtorch",
    "vllm.vllm_flash_attn._vllm_fa2_C",
    "vllm.vllm_flash_attn._vllm_fa3_C",
)
"""vLLM's compiled modules for CUDA, which the CPU build has not; none of their functions is called here."""

BANNED = [3, 4]


def pretend_card() -> None:
    """An H100 with Triton, as far as vLLM can tell before it asks torch. Must run before anything else of vLLM."""
    prepare_process()
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # with it Triton may be without a driver
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ["VLLM_USE_FLASHINFER_SAMPLER"] = "0"  # it is not installed here, and seeded requests do without it
    for name in COMPILED:
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        sys.modules[name] = module
    from vllm import platforms

    platforms.resolve_current_platform_cls_qualname = lambda: "tests.rl_core.rollout.pretended_h100.H100"
    platforms.vllm_version_matches_substr = lambda part: False
    import vllm._custom_ops as compiled

    for name in dir(compiled):
        if "supports" in name or name.endswith("_supported"):
            setattr(compiled, name, lambda *_, **__: False)


def arguments_of(folder: Path, dtype: str, ranks: GeneratorRanks = WHOLE) -> Any:
    """The engine arguments of the product for a small run."""
    from rl_core.rollout.vllm_arguments import token_ban
    from tests.rl_core.rollout.test_vllm_arguments import small_arguments

    return replace(small_arguments(folder, ranks=ranks, dtype=dtype), logits_processors=[token_ban(BANNED)])


def choices(arguments: Any) -> dict[str, Any]:
    """What vLLM chooses for an engine."""
    from vllm import envs
    from vllm.config import set_current_vllm_config
    from vllm.v1.attention.selector import get_attn_backend
    from vllm.v1.executor.abstract import Executor

    config = arguments.create_engine_config()
    with set_current_vllm_config(config):
        backend = get_attn_backend(128, config.model_config.dtype, None).get_name()
    return {
        "second runner": config.use_v2_model_runner,
        "asynchronous": config.scheduler_config.async_scheduling,
        "graphs": config.compilation_config.cudagraph_mode.name,
        "head": str(config.model_config.head_dtype),
        "attention": backend,
        "executor": Executor.get_class(config).__name__,
        "sleeps": config.model_config.enable_cumem_allocator,
        "worker": config.parallel_config.worker_cls,
        "adds by NCCL alone": not (
            envs.VLLM_ALLREDUCE_USE_FLASHINFER
            or envs.VLLM_ALLREDUCE_USE_SYMM_MEM
            or (config.parallel_config.tensor_parallel_size > 1 and _has_other_all_reduce(config))
        ),
    }


def _has_other_all_reduce(config: Any) -> bool:
    """Whether ranks may add by vLLM's kernel, or in a fusion with the norm after it."""
    fuses = config.compilation_config.pass_config.fuse_allreduce_rms
    return fuses is not False or not config.parallel_config.disable_custom_all_reduce


def end_of_start(arguments: Any) -> str:
    """The error that ends an engine's start where there is no card."""
    from vllm import LLMEngine

    try:
        LLMEngine.from_engine_args(arguments)
    except (AssertionError, ValueError) as error:
        return f"{traceback.extract_tb(error.__traceback__)[-1].name}: {error}"
    raise RuntimeError("an engine starts without a card")


def main(folder: Path, file: Path) -> None:
    """Write the findings."""
    pretend_card()
    place = RankPlace(rank=0, size=2, ranks_per_node=2, meeting="tcp://127.0.0.1:1")
    pair = GeneratorRanks(place=place, size=2, group=None)
    bfloat16, float32 = arguments_of(folder, "bfloat16"), arguments_of(folder, "float32")
    found = {
        "bfloat16": choices(bfloat16),
        "float32": choices(float32),
        "two ranks": choices(arguments_of(folder, "bfloat16", pair)),
        "end": end_of_start(bfloat16),
    }
    file.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
