"""Spreads a policy or a critic over the ranks with FSDP2 (`torch.distributed.fsdp.fully_shard`).

Each decoder layer and each block of the vision tower is gathered on its own just before it computes, and the rest of
the model (embeddings, norms, head) together. A gradient is the sum over the ranks, not their mean, because the loss
of each rank already has the denominator of the whole optimizer batch. With several replicas of the weights, each is
spread on its own, and their gradients are added up once for an optimizer step (rl_core/distributed/collectives.py).
"""

import warnings
from typing import Final

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from transformers.modeling_layers import GradientCheckpointingLayer

from rl_core.distributed.shards import sharded_parts
from rl_core.models.policy import PolicyModel
from rl_core.models.value import ValueModel

_AS_IT_IS: Final = MixedPrecisionPolicy(cast_forward_inputs=False)


def shard(model: PolicyModel | ValueModel, mesh: DeviceMesh, *, float32_masters: bool) -> None:
    """Keep this rank's part of the weights, on the mesh's device, in place. Every rank calls it.

    With `float32_masters` the trained bfloat16 weights become float32, which the optimizer updates and which are
    rounded to bfloat16 for each pass. Frozen weights always keep their format.
    """
    # The view that it warns of is never changed in place.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module", category=UserWarning)

    precision = _precision(model)
    for layer in list(model.modules()):
        if isinstance(layer, GradientCheckpointingLayer):
            fully_shard(layer, mesh=mesh, mp_policy=precision)
    if isinstance(model, ValueModel):
        fully_shard(model.head, mesh=mesh, mp_policy=_AS_IT_IS)  # float32 in a bfloat16 model too
    fully_shard(model, mesh=mesh, mp_policy=precision)
    if float32_masters:
        # Only now, so that no rank has more than its shards of the trained weights in float32. FSDP2 takes note of what
        # `_apply` changes, as `model.float()` does.
        model._apply(lambda tensor: tensor.float() if tensor.requires_grad else tensor)  # type: ignore[no-untyped-call]
    if isinstance(model, PolicyModel):
        register_fsdp_forward_method(model, "head_rows")
    for part in sharded_parts(model):
        part.set_gradient_divide_factor(1.0)
        part.set_force_sum_reduction_for_comms(True)  # gloo has no operation that also divides


def _precision(model: PolicyModel | ValueModel) -> MixedPrecisionPolicy:
    """Gather bfloat16 weights as bfloat16, and add their gradients in float32. float32 models need nothing."""
    weights = {weight.dtype for name, weight in model.named_parameters() if not name.startswith("head.")}
    if torch.bfloat16 not in weights:
        return _AS_IT_IS
    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
