"""Starts vLLM with everything that takes the place of its own code."""

from dataclasses import replace

from vllm import EngineArgs, LLMEngine

from rl_core.rollout.cpu.image_blocks import use_image_blocks
from rl_core.rollout.cpu.products import use_own_products
from rl_core.rollout.cpu.scheduler import DecodeScheduler
from rl_core.rollout.cpu.weight_places import CopyingLoader
from rl_core.rollout.weight_loading import WeightLoader


def start(arguments: EngineArgs) -> tuple[LLMEngine, type[WeightLoader]]:
    """The engine, and the class that loads its weights.

    An engine with a part of the model, where what is left out of a weight could also be a mistake, or with adapters,
    whose weights hardly ever change, gets its weights in the ordinary way each time.
    """
    use_own_products()
    use_image_blocks()
    engine = LLMEngine.from_engine_args(replace(arguments, scheduler_cls=DecodeScheduler))
    is_plain = arguments.tensor_parallel_size == 1 and not arguments.enable_lora
    return engine, CopyingLoader if is_plain else WeightLoader
