"""What each rank of a group that shares its sequences computes."""

from pathlib import Path

import torch
import torch.distributed as dist

from rl_core.distributed.place import RankPlace
from rl_core.models.packing import TreeInput, pack_trees
from rl_core.models.sequence_parallel import SequenceParallel
from rl_core.models.value import ValueModel
from tests.rl_core.models.builders import FAMILIES, VISION_FAMILIES, Bench, clip, roughen

CASES = tuple(
    (family, kind)
    for family in FAMILIES
    for kind in ("policy", "recomputed", "critic", *(("frozen tower",) if family in VISION_FAMILIES else ()))
)


def trees_for(bench: Bench, family: str) -> list[TreeInput]:
    """Slices begin inside prompts, images and responses; the number of tokens is no multiple of 2 or 4."""
    images = family in VISION_FAMILIES
    trees = [
        bench.tree([3, 2] if images else [5], ["wide-1"] if images else [], [5, 3, 1], seed=1),
        bench.tree([4], [], [2, 6], seed=2),
        bench.tree([1, 1, 3] if images else [7], ["square-1", "small-2"] if images else [], [7, 2], seed=3),
    ]
    if images:
        trees.append(bench.tree([2, 1], [], [3], videos=[clip("small")], seed=4))
    return trees


def computed(folder: Path, family: str, kind: str, parallel: SequenceParallel | None) -> dict[str, torch.Tensor]:
    """Outputs and the gradient of a loss that weighs every token differently."""
    fields = {"gradient_checkpointing": kind == "recomputed", "freeze_vision_tower": kind == "frozen tower"}
    bench = Bench.load(folder / family, log_prob_chunk_tokens=3, **fields)
    packed = pack_trees(
        trees_for(bench, family),
        pixels=bench.pixels,
        model_config=bench.policy.config,
        device=torch.device("cpu"),
    )
    weights = torch.linspace(-1.0, 2.0, len(packed.targets))
    module = ValueModel(bench.policy.model) if kind == "critic" else bench.policy
    roughen(module)
    if kind == "frozen tower":
        bench.policy.model.base_model.visual.requires_grad_(False)
    if parallel is not None:
        module.share_sequences(parallel)
    if kind == "critic":
        outputs = {"values": module(packed)}
        loss = (weights * outputs["values"].square()).sum()
    else:
        with torch.no_grad():
            reference = bench.policy.head_rows(packed)
        made = module(packed, temperature=0.7, entropy="gradient", reference=reference)
        outputs = {"log_probs": made.log_probs, "entropy": made.entropy, "full_kl": made.full_kl}
        loss = (weights * (made.log_probs + 0.3 * made.entropy)).sum()
    loss.backward()
    parts = [p.grad if p.grad is not None else torch.zeros_like(p) for p in module.parameters()]
    gradient = torch.cat([part.flatten() for part in parts])
    return {name: value.detach() for name, value in outputs.items()} | {"gradient": gradient}


def computed_together(place: RankPlace, folder: Path) -> dict[tuple[str, str], dict[str, torch.Tensor]]:
    """Every case, computed with the other ranks."""
    dist.init_process_group("gloo", init_method=place.meeting, rank=place.rank, world_size=place.size)
    group = dist.group.WORLD
    assert group is not None
    found = {case: computed(folder, *case, SequenceParallel.of(group)) for case in CASES}
    dist.barrier()
    dist.destroy_process_group()
    return found
