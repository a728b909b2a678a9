"""Chooses the part of a model that RL trains: all of it, all but the vision tower, or LoRA adapters."""

from torch import nn
from transformers import PreTrainedModel

from rl_core.config.model import ModelConfig
from rl_core.models.lora import attach_lora


def choose_trained_part(model: PreTrainedModel, config: ModelConfig, *, run_seed: int) -> None:
    """Freeze the weights that `freeze_vision_tower` or `lora` exclude from training, and attach the adapters, in place.

    Raises:
        ValueError: there is no vision tower to freeze, or no layer to adapt.
    """
    if config.lora is not None:
        attach_lora(model, config.lora, run_seed=run_seed)
    elif config.freeze_vision_tower:
        freeze_vision_tower(model)


def freeze_vision_tower(model: PreTrainedModel) -> None:
    """Freeze the vision tower. Raises ValueError if the model has none."""
    tower = getattr(model.base_model, "visual", None)
    if not isinstance(tower, nn.Module):
        raise ValueError(f"model.freeze_vision_tower is set, but a {model.config.model_type} model has no vision tower")
    tower.requires_grad_(False)
