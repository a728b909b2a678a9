"""Several ranks come to the gradient, the metrics and the weights of one: real processes over gloo, FSDP2, different
data on each of them. One launch for each number of ranks goes through all its cases."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rl_core.loop.step_metrics import token_means
from tests.rl_core.distributed.spmd import run_ranks
from tests.rl_core.models.builders import relative_difference, write_small_model
from tests.rl_core.training.rank_updates import Case, Found, compute, on_ranks
from tests.servers import free_port

pytestmark = pytest.mark.timeout(1500)  # each launch imports torch in several processes

LORA = {"lora": {"rank": 2, "alpha": 4, "target_modules": "all-linear"}}
FULL_KL = ("algorithm.kl={coef: 0.1, penalty: full}",)

CASES: Mapping[int, Mapping[str, Case]] = {
    2: {
        "full": Case(),
        "again": Case(),
        "none, critic, other images on each rank": Case(layout="none", critic=True, deal=[[1, 3], [0, 2, 4]]),
        "none, bfloat16, a rank without groups": Case(
            layout="none", model={"dtype": "bfloat16"}, deal=[[0, 1, 2, 3, 4], []]
        ),
        "a rank without an image": Case(deal=[[0, 2, 4], [1, 3]]),
        "a rank without groups": Case(deal=[[0, 1, 2, 3, 4], []]),
        "pure bfloat16": Case(model={"dtype": "bfloat16"}, overrides=("actor.optim.strategy=adamw_bf16",)),
        "shared sequences": Case(ranks_per_sequence=2),
        "shared sequences, DeepStack, adapters": Case(family="qwen3_vl", model=LORA, ranks_per_sequence=2),
        "shared sequences, critic": Case(critic=True, ranks_per_sequence=2),
        "shared sequences, full KL": Case(overrides=FULL_KL, ranks_per_sequence=2),
        "hybrid, two machines": Case(layout="hybrid", ranks_per_node=1),
    },
    4: {
        "two pairs that share sequences": Case(ranks_per_sequence=2),
        "text, four share sequences": Case(family="llama", ranks_per_sequence=4),  # with two key/value heads
    },
}

MORE_CASES: Mapping[int, Mapping[str, Case]] = {
    2: {
        "none": Case(layout="none"),
        "adapters": Case(model=LORA),
        "critic": Case(critic=True),
        "full KL": Case(overrides=FULL_KL, deal=[[0, 1, 2, 4], [3]]),
        "text": Case(family="llama"),
        "scalars of layers": Case(family="gemma4_text"),
        "shared sequences, two kinds of heads": Case(family="gemma4_text", ranks_per_sequence=2),
        "tied head": Case(family="qwen3_vl"),
        "frozen vision tower": Case(model={"freeze_vision_tower": True}),
        "critic without groups": Case(critic=True, deal=[[], [0, 1, 2, 3, 4]]),
        "recomputed activations": Case(model={"gradient_checkpointing": True}),
        "logits in chunks": Case(model={"log_prob_chunk_tokens": 3}),
        "bfloat16": Case(model={"dtype": "bfloat16"}),
        "bfloat16 adapters": Case(model=LORA | {"dtype": "bfloat16"}),
        "shared sequences, tiles": Case(family="idefics3", ranks_per_sequence=2),
        "shared sequences, recomputed": Case(model={"gradient_checkpointing": True}, ranks_per_sequence=2),
    },
    3: {"full": Case(), "two ranks without groups": Case(deal=[[], [0, 1, 2, 3, 4], []])},
    4: {
        "full": Case(),
        "none": Case(layout="none"),
        "hybrid": Case(layout="hybrid", ranks_per_node=2),
        "hybrid, a machine without images, one rank without groups": Case(
            layout="hybrid", ranks_per_node=2, deal=[[1], [], [0, 2], [3, 4]]
        ),
        "hybrid, pairs that share sequences": Case(layout="hybrid", ranks_per_node=2, ranks_per_sequence=2),
        "hybrid, adapters": Case(layout="hybrid", ranks_per_node=2, model=LORA),
        "hybrid, pure bfloat16": Case(
            layout="hybrid",
            ranks_per_node=2,
            model={"dtype": "bfloat16"},
            overrides=("actor.optim.strategy=adamw_bf16",),
        ),
        "pairs, one without groups": Case(ranks_per_sequence=2, deal=[[], [0, 1, 2, 3, 4]], layout="none"),
    },
}

EXCHANGES = 2
"""What replicas of the weights exchange in an optimizer step of a tiny model: which weights have a gradient, and
these in one bucket."""

ROUNDING = {"float32": 1e-5, "bfloat16": 3e-2}
"""A bfloat16 gradient of part of a batch is rounded before it is added, one of the whole batch after it."""


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for family in ("llama", "qwen2_5_vl", "qwen3_vl", "idefics3"):
        write_small_model(root / family, family)
    scalars = write_small_model(root / "gemma4_text", "gemma4_text") / "model.safetensors"
    weights = load_file(scalars)
    changed = {name: 0.5 * weight if name.endswith("layer_scalar") else weight for name, weight in weights.items()}
    save_file(changed, scalars, metadata={"format": "pt"})
    return root


@pytest.mark.parametrize(
    ("size", "cases"),
    [
        *(pytest.param(size, cases, id=f"{size}") for size, cases in CASES.items()),
        *(pytest.param(size, cases, id=f"{size}, more", marks=pytest.mark.slow) for size, cases in MORE_CASES.items()),
    ],
)
def test_ranks_come_to_the_numbers_of_one(size, cases, models, tmp_path):
    meetings = {name: f"tcp://127.0.0.1:{free_port()}" for name in cases}
    ranks = run_ranks(on_ranks, tmp_path, meetings, models, cases, size=size)
    problems = []
    for name, case in cases.items():
        expected = compute(case, models)
        problems += [f"{name}: {problem}" for problem in differing(case, expected, [found[name] for found in ranks])]
    assert not problems, "\n".join(problems)
    if "again" in cases:
        for found in ranks:
            for what in ("gradients", "weights"):
                first, second = (getattr(found[name], what) for name in ("full", "again"))
                assert all(torch.equal(first[name], second[name]) for name in first), "not equal to the bit"


def test_denominators_of_its_own_groups_would_change_the_gradient(models):
    """The control."""
    expected = flat(compute(Case(), models).gradients)
    assert relative_difference(flat(compute(Case(), models, only=[0, 1]).gradients), expected) > 1e-2


def differing(case: Case, expected: Found, ranks: list[Found]) -> list[str]:
    """What is not equal up to rounding."""
    bound = ROUNDING[str(case.model.get("dtype", "float32"))]
    problems = []
    for number, found in enumerate(ranks):
        who = f"rank {number}"
        if found.gradients.keys() != expected.gradients.keys():
            problems.append(f"{who} has gradients of other weights")
            continue
        for what in ("gradients", "weights"):
            one, other = flat(getattr(expected, what)), flat(getattr(found, what))
            if not (difference := relative_difference(other, one)) < bound:
                problems.append(f"{who}: {what} differ by {difference}")
        if found.exchanges != (0 if case.layout == "full" else EXCHANGES):
            problems.append(f"{who}: {found.exchanges} exchanges between replicas in an optimizer step")
        if not case.critic and ("exchange" in found.phases) != (case.layout != "full"):
            problems.append(f"{who} timed {found.phases}")
        if found.norms != pytest.approx(expected.norms, rel=bound):
            problems.append(f"{who}: norms {found.norms} instead of {expected.norms}")
        if found.norms != ranks[0].norms:
            problems.append(f"{who}: norm {found.norms} differs from rank 0's {ranks[0].norms}")
        for group, passes in found.passes.items():
            gap = max(float(np.abs(a - b).max()) for a, b in zip(passes, expected.passes[group], strict=True))
            if not gap < 10 * bound:
                problems.append(f"{who}: the pass of group {group} differs by {gap}")
    learners = ranks[:: case.ranks_per_sequence]
    if sorted(group for found in learners for group in found.passes) != sorted(expected.passes):
        problems.append("a group is missing")
    means = token_means([part for found in learners for part in found.tokens])
    if means != pytest.approx(token_means(expected.tokens), rel=bound, abs=bound):
        problems.append(f"metrics {means} instead of {token_means(expected.tokens)}")
    return problems


def flat(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.detach().float().flatten() for tensor in tensors.values()])
