"""The part of a model that RL trains: all of it, all but the vision tower, or LoRA adapters, which are small matrices
next to frozen weights (Hu et al. 2021, arXiv:2106.09685).

By default the generator gets merged weights, with the names and the sync of any other policy. This works for every rank
of an adapter and every layer, vision towers included, which vLLM's own adapters do not. In float32 it is exact up to
rounding. In bfloat16 a merged weight is rounded once more than the sum that the trainer computes, which
`model.lora.generator_weights` avoids.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from transformers import PreTrainedModel
from typing_extensions import override

from rl_core.config.model import LoraConfig, ModelConfig
from rl_core.families.registry import vision_of
from rl_core.models.output_head import EntropyMode, HeadRows, PolicyOutput
from rl_core.models.packing import PackedTrees
from rl_core.models.policy import PolicyModel
from rl_core.planning.meta_model import layers_and_others
from rl_core.planning.rules import target_problem
from rl_core.planning.training_state import is_adapted
from rl_core.randomness import keyed_seed


def choose_trained_part(model: PreTrainedModel, config: ModelConfig, *, run_seed: int) -> None:
    """Freeze the weights that `freeze_vision_tower` or `lora` exclude from training, and attach the adapters, in place.
    Raises ValueError if there is no vision tower to freeze, or no layer to adapt."""
    if config.lora is not None:
        attach_lora(model, config.lora, run_seed=run_seed)
    elif config.freeze_vision_tower:
        freeze_vision_tower(model)


def freeze_vision_tower(model: PreTrainedModel) -> None:
    """Freeze the vision tower and what joins it to the language model. Raises ValueError if the model has none."""
    vision = vision_of(model.config.model_type)
    if vision is None:
        raise ValueError(f"model.freeze_vision_tower is set, but a {model.config.model_type} model has no vision tower")
    frozen = tuple(f"{place}." for place in vision.places)
    for name, weight in model.base_model.named_parameters():
        if name.startswith(frozen):
            weight.requires_grad_(False)


def attach_lora(model: PreTrainedModel, config: LoraConfig, *, run_seed: int) -> None:
    """Freeze the model and add adapters of its number format to its linear layers, in place. They have no effect at
    first: the second matrix of each is zero, and the first is initialised from the run's seed. Raises ValueError as
    `target_problem` finds."""
    # Imported here because peft takes a second to import, and most runs do not need it.
    from peft import LoraConfig as PeftConfig
    from peft import inject_adapter_in_model

    linear, others = layers_and_others(model)
    problem = target_problem(config, linear=linear, others=others)
    if problem is not None:
        raise ValueError(f"{problem}")
    peft_config = PeftConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # type: ignore[arg-type]  # peft divides by the rank and takes any number
        target_modules=[name for name in linear if is_adapted(name, config)],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(keyed_seed(run_seed, "lora"))
        # Without the model's config, by which peft takes names of layers for those of experts in some families.
        inject_adapter_in_model(peft_config, nn.ModuleDict({"model": model}))


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[None]:
    """Inside the block the model computes without its adapters, which are still trained parameters."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    # Not by peft's `enable_adapters`, which freezes them too: FSDP2 notes in the first pass through a model which
    # parameters have a gradient, and in which number format it is added up.
    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False


class UnadaptedPolicy(PolicyModel):
    """A policy without its adapters: the model that RL started from. It needs no memory of its own."""

    def __init__(self, adapted: PolicyModel) -> None:
        super().__init__(adapted.model, banned_token_ids=(), chunk_tokens=adapted.chunk_tokens)
        self.logit_bias = adapted.logit_bias
        self._adapted = (adapted,)  # a tuple, because its weights are those of `model`

    @override
    def forward(
        self,
        packed: PackedTrees,
        *,
        temperature: float,
        entropy: EntropyMode = "none",
        reference: HeadRows | None = None,
    ) -> PolicyOutput:
        """The pass goes through the adapted policy, which may be sharded."""
        with adapters_off(self.model):
            output: PolicyOutput = self._adapted[0](
                packed, temperature=temperature, entropy=entropy, reference=reference
            )
        return output

    @override
    def head_rows(self, packed: PackedTrees) -> HeadRows:
        """The head itself has no adapter."""
        with adapters_off(self.model):
            return self._adapted[0].head_rows(packed)
