"""GLM-4-0414, text: half of each head is rotated, and each block has four norms."""

from typing import Final

from rl_core.families.family import EngineNeeds, Family

FAMILY: Final = Family(
    name="glm4",
    model_type="glm4",
    tiny_text=lambda head_size: {"head_dim": head_size},
    engine=EngineNeeds(unadapted=("gate_up_proj",)),
)
