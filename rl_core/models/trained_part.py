"""The part of a model that RL trains: all of it, all but the vision tower, or LoRA adapters, which are small matrices
next to frozen weights (Hu et al. 2021, arXiv:2106.09685).

By default the generator gets merged weights, with the names and the sync of any other policy. This works for every rank
of an adapter and every layer, vision towers included, which vLLM's own adapters do not. In float32 it is exact up to
rounding. In bfloat16 a merged weight is rounded once more than the sum that the trainer computes, which
`model.lora.generator_weights` avoids.
"""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from transformers import PreTrainedModel
from typing_extensions import override

from rl_core.config.model import LoraConfig, ModelConfig
from rl_core.families.registry import vision_modules, vision_of
from rl_core.models.named_weights import ADAPTER
from rl_core.models.output_head import EntropyMode, HeadRows, PolicyOutput
from rl_core.models.packing import PackedTrees
from rl_core.models.policy import PolicyModel
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
    for place in vision.places:
        model.base_model.get_submodule(place).requires_grad_(False)


def attach_lora(model: PreTrainedModel, config: LoraConfig, *, run_seed: int) -> None:
    """Freeze the model and add adapters of its number format to its linear layers, in place. They have no effect at
    first: the second matrix of each is zero, and the first is initialised from the run's seed. Raises ValueError if the
    targets match no layer, or one that cannot be adapted (embeddings, the output head, experts)."""
    # Imported here because peft takes a second to import, and most runs do not need it.
    from peft import LoraConfig as PeftConfig
    from peft import inject_adapter_in_model

    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # The default excludes the vision tower, which text models do not have.
        warnings.filterwarnings("ignore", message=re.escape(f"You have passed exclude_modules={vision_modules()} "))
        torch.manual_seed(keyed_seed(run_seed, "lora"))
        peft_config = PeftConfig(
            r=config.rank,
            lora_alpha=config.alpha,  # type: ignore[arg-type]  # peft divides by the rank and takes any number
            target_modules=_linear_layers(model)
            if config.target_modules == "all-linear"
            else _peft_form(config.target_modules),
            exclude_modules=_peft_form(config.excluded),
        )
        try:
            inject_adapter_in_model(peft_config, model)
        except ValueError as error:
            raise ValueError(f"model.lora.target_modules and exclude_modules: {error}") from error
    _check_targets(model)


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


def _check_targets(model: PreTrainedModel) -> None:
    """Refuse adapters of weights that two layers may share: they would be merged into both, but peft trains them in
    one. And those of experts, of which peft adapts the stack: nothing here merges them, and vLLM has none of them."""
    from peft.tuners.lora.layer import ParamWrapper

    stacks = sorted(name for name, module in model.named_modules() if isinstance(module, ParamWrapper))
    if stacks:
        raise ValueError(
            f"model.lora.target_modules matches the experts of {stacks[0]}, which cannot be adapted: name linear "
            "layers alone, such as .*self_attn.*_proj"
        )
    names = {name.partition(ADAPTER)[0] for name, parameter in model.named_parameters() if parameter.requires_grad}
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    refused = sorted(name for name in names if model.get_submodule(name) in ends)
    if refused:
        raise ValueError(
            f"model.lora.target_modules matches {', '.join(refused)}, but embeddings and the output head cannot be "
            f"adapted: name linear layers inside the model, or set it to all-linear"
        )


def _linear_layers(model: PreTrainedModel) -> list[str]:
    """All but the output head, by their names. For its own `all-linear` peft takes the experts too."""
    head = model.get_output_embeddings()
    return [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear) and layer is not head]


def _peft_form(names: str | tuple[str, ...] | None) -> str | list[str] | None:
    return list(names) if isinstance(names, tuple) else names
