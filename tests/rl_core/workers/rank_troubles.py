"""What goes wrong on one rank comes out on all of them; and the cold start, of which every rank gets all examples."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from rl_core.data.prepared import PreparedDataset
from rl_core.distributed.place import RankPlace
from rl_core.training.batches import OptimizerBatch, UpdateBatch
from rl_core.types import Float32Array, RolloutKey, SupervisedExample
from tests.rl_core.steps import save_state
from tests.rl_core.workers.rank_life import LONGEST, Rank, made_up, probe_of, train_group

COLD_START = (
    "cold_start.source={type: counting, size: 16, scene_seed: 3, image_size: 56}",
    "cold_start.target_template=x",
    "cold_start.steps=3",
    "cold_start.batch_size=4",
)


@dataclass
class Troubles:
    """What one rank saw.

    Attributes:
        imitated: The metrics of cold-start steps with many examples, and with a single one.
        errors: The error of each attempt, with its type.
        reference: Rollout -> log-probs under the policy without its adapters, and the full KL to it.
    """

    imitated: Sequence[dict[str, float]]
    errors: dict[str, str]
    reference: Mapping[RolloutKey, tuple[Float32Array, Float32Array]]


def troubles(place: RankPlace, meeting: str, root: Path, folder: Path) -> Troubles:
    """Cold-start steps, then errors that only one rank can find; with another worker, adapters."""
    imitated, errors = cold_start_and_errors(place, root, folder)
    return Troubles(imitated, errors, without_adapters(replace(place, meeting=meeting), root))


def without_adapters(place: RankPlace, root: Path) -> dict[RolloutKey, tuple[Float32Array, Float32Array]]:
    """What the reference computes after an update of adapters."""
    rank = Rank.open(place, root, ("model.lora={rank: 2}", "algorithm.kl={coef: 0.1, penalty: full}"))
    worker, groups = rank.worker, made_up(rank)
    worker.load("policy", rank.run.initial_model)
    worker.load("reference", rank.run.initial_model)
    rank.learned(groups, check_agreement=False)
    found = {
        rollout.key: (log_probs, kl)
        for group, of_reference, kls in zip(
            groups,
            worker.compute("reference_log_probs", [groups])[0],
            worker.compute("full_kl", [groups])[0],
            strict=True,
        )
        for rollout, log_probs, kl in zip(group.rollouts, of_reference, kls, strict=True)
    }
    worker.close()
    return found


def cold_start_and_errors(place: RankPlace, root: Path, folder: Path) -> tuple[list[dict[str, float]], dict[str, str]]:
    """The metrics of the steps, and the errors."""
    rank = Rank.open(place, root, COLD_START)
    worker = rank.worker
    worker.load("policy", rank.run.initial_model)
    imitated = [dict(worker.imitate(examples(rank, count))) for count in (5, 1)]
    groups = made_up(rank)
    saved = folder / f"saved-{place.size}"
    save_state(worker, saved, model_only=False, probe=probe_of(rank, groups))
    if worker.ranks.is_first:
        shutil.copytree(saved, folder / "other-probe")
        spoil_probe(folder / "other-probe" / "probe" / "probe.json")
        shutil.copytree(saved, folder / "other-model")
        shutil.rmtree(folder / "other-model" / "model")
        shutil.copytree(saved / "optimizer", folder / "other-model" / "model")
        shutil.copytree(rank.run.initial_model, folder / "damaged")
        (folder / "damaged" / "model.safetensors").write_bytes(b"damaged")  # which only the first rank can find
    worker.ranks.gather(None)
    seen_by_all = place.rank != place.size - 1
    attempts: dict[str, Callable[[], object]] = {
        "generator": lambda: disagreeing(rank),
        "probe": lambda: worker.load("saved state", folder / "other-probe"),
        "tensors": lambda: worker.load("saved state", folder / "other-model"),
        "checkpoint": lambda: worker.load("saved state", saved if seen_by_all else folder / "unseen"),
        "model": lambda: worker.load("policy", rank.run.initial_model if seen_by_all else folder / "unseen"),
        "weights": lambda: worker.load("policy", folder / "damaged"),
        "placing": lambda: without_room(rank, is_full=not seen_by_all),
        "again": lambda: worker.load("policy", rank.run.initial_model),
    }
    errors = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
            errors[name] = f"{type(error).__name__}: {error}"
    worker.close()
    return imitated, errors


def examples(rank: Rank, count: int) -> list[SupervisedExample]:
    dataset = PreparedDataset.open(rank.run.data, "train")
    return [
        SupervisedExample(prompt=dataset[row], target_ids=np.arange(3 + row, 8 + 2 * row, dtype=np.int32))
        for row in range(count)
    ]


def disagreeing(rank: Rank) -> None:
    """An update in which the generator's log-probs of the last rank are off."""
    groups, place = made_up(rank), rank.place
    old = rank.worker.compute("old_log_probs", [groups])[0]
    off = np.float32(1.0 if place.rank == place.size - 1 else 0.0)
    made = []
    for group, values in zip(groups, old, strict=True):
        rollouts = [
            replace(r, log_probs=v + off, policy_version=rank.worker.policy_version)
            for r, v in zip(group.rollouts, values, strict=True)
        ]
        made.append(train_group(replace(group, rollouts=rollouts), values))
    everything = [group for own in rank.worker.ranks.gather(made) for group in own]
    totals = OptimizerBatch.of(everything, longest_response=LONGEST).totals
    rank.worker.update(UpdateBatch(policy=[OptimizerBatch(groups=made, totals=totals)]))


def without_room(rank: Rank, *, is_full: bool) -> None:
    """Load a policy, which does not fit on the device of a rank that is full."""
    no_room = torch.OutOfMemoryError("no room") if is_full else None
    trainer = rank.worker.trainer
    with patch.object(trainer, "_place", wraps=trainer._place, side_effect=no_room):
        rank.worker.load("policy", rank.run.initial_model)


def spoil_probe(path: Path) -> None:
    content = json.loads(path.read_text())
    for item in content["items"]:
        item["log_probs"] = [value - 0.5 for value in item["log_probs"]]
    path.write_text(json.dumps(content))
