"""What ranks load in tests/rl_core/distributed/test_weight_broadcast.py."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from rl_core.distributed.place import Layout, RankPlace
from rl_core.distributed.ranks import Ranks
from rl_core.distributed.shards import whole
from rl_core.distributed.weight_broadcast import broadcast_weights, parameters_of
from rl_core.models.policy import PolicyModel, load_policy
from rl_core.models.sharding import shard
from rl_core.models.trained_part import choose_trained_part
from rl_core.models.value import ValueModel, load_value_model
from tests.rl_core.models.builders import model_config


@dataclass(frozen=True)
class Case:
    """A model, and where its weights lie. Without `float32_masters` trained bfloat16 weights stay bfloat16."""

    layout: Layout
    family: str
    model: Mapping[str, object] = field(default_factory=dict)
    is_critic: bool = False
    float32_masters: bool = True


CASES = {
    "full, tied head": Case("full", "qwen3_vl", {"dtype": "bfloat16"}),
    "full, bfloat16": Case("full", "qwen2_5_vl", {"dtype": "bfloat16"}),
    "full, pure bfloat16": Case("full", "llama", {"dtype": "bfloat16"}, float32_masters=False),
    "full, adapters": Case("full", "qwen2_5_vl", {"dtype": "bfloat16", "lora": {"rank": 2}}),
    "full, critic": Case("full", "qwen2_5_vl", {"dtype": "bfloat16"}, is_critic=True),
    "hybrid": Case("hybrid", "llama"),
    "none": Case("none", "qwen3_vl", {"freeze_vision_tower": True}),
}


def load(case: Case, folder: Path, *, with_weights: bool = True) -> PolicyModel | ValueModel:
    """The model on the CPU."""
    config = model_config(folder, **case.model)
    if case.is_critic:
        return load_value_model(folder, config, with_weights=with_weights)
    policy = load_policy(folder, config, with_weights=with_weights)
    choose_trained_part(policy.model, config, run_seed=1)
    return policy


def differing(place: RankPlace, meetings: Mapping[str, str], whole_models: Path, without: Path) -> dict[str, list[str]]:
    """Case -> names of the weights and buffers that are not equal to the bit to those of a rank that is alone. The
    folders of all ranks but the first, below `without`, have no weights."""
    found = {}
    for name, case in CASES.items():
        ranks = Ranks.join(replace(place, meeting=meetings[name]), case.layout)
        folder = (whole_models if ranks.is_first else without) / case.family
        model = load(case, folder, with_weights=ranks.is_first)
        read = parameters_of(model)
        if ranks.shards is not None:
            shard(model, ranks.shards, float32_masters=case.float32_masters)
        broadcast_weights(model, read, ranks)
        expected = load(case, whole_models / case.family)
        own = {key: whole(weight) for key, weight in model.named_parameters()} | dict(model.named_buffers())
        theirs = {key: kept(case, weight) for key, weight in expected.named_parameters()}
        theirs |= dict(expected.named_buffers())
        found[name] = [key for key, value in theirs.items() if not equal(value, own.pop(key))] + [*own]
        ranks.close()
    return found


def kept(case: Case, weight: torch.Tensor) -> torch.Tensor:
    """A weight in the number format in which a rank keeps it."""
    is_master = case.layout != "none" and case.float32_masters and weight.requires_grad
    return weight.float() if is_master else weight


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and one.equal(other)
