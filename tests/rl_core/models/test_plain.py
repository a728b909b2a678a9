"""The tree forward equals the plain one: log-probs and gradients, to 1e-5 of their norm in float32. Layers that carry a
state add logarithms of decays over many tokens, and lose a digit more."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_core.models.packing import TreeInput
from rl_core.models.tree_recurrence import carries_state
from tests.rl_core.models.builders import (
    FAMILIES,
    IMAGE_SIZES,
    VIDEO_FAMILIES,
    VISION_FAMILIES,
    Bench,
    clip,
    relative_difference,
    take_gradients,
)
from tests.rl_core.models.plain import plain_log_probs

TOLERANCE = 1e-5
# Chunks smaller than a micro-batch, so that the chunked output head is part of what is compared.
CHUNK_TOKENS = 8

BenchLoader = Callable[..., Bench]


@pytest.fixture(scope="module")
def bench_of(model_folder) -> BenchLoader:
    @cache
    def load(family: str, *, gradient_checkpointing: bool = False) -> Bench:
        return Bench.load(
            model_folder(family), gradient_checkpointing=gradient_checkpointing, log_prob_chunk_tokens=CHUNK_TOKENS
        )

    return load


@st.composite
def tree_shapes(draw: st.DrawFn, *, max_images: int) -> tuple[list[int], list[str], list[int]]:
    """Text lengths, image uids and response lengths of one tree."""
    names = draw(st.lists(st.sampled_from(sorted(IMAGE_SIZES)), max_size=max_images))
    texts = draw(st.lists(st.integers(1, 6), min_size=len(names) + 1, max_size=len(names) + 1))
    responses = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    return texts, [f"{name}-{draw(st.integers(0, 3))}" for name in names], responses


def token_weights(trees: list[TreeInput]) -> torch.Tensor:
    """[K] a weight of its own for every token, so that no error cancels in the gradient."""
    count = sum(len(response) for tree in trees for response in tree.responses)
    return torch.from_numpy(np.random.default_rng(5).standard_normal(count)).float()


def tree_pass(
    bench: Bench, trees: list[TreeInput], weights: torch.Tensor, *, parts: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs and gradients by the tree forward, in micro-batches of which each takes some responses of the trees."""
    log_probs, done = [], 0
    for batch in split_into_parts(trees, parts):
        packed = bench.pack(batch)
        output = bench.policy(packed, temperature=0.7).log_probs
        (output * weights[done : done + len(output)]).sum().backward()
        log_probs.append(output.detach())
        done += len(output)
    return torch.cat(log_probs), take_gradients(bench.policy)


def split_into_parts(trees: list[TreeInput], parts: int) -> list[list[TreeInput]]:
    """Cut the list of all responses in `parts`; a prompt goes with every part that has a response of it."""
    flat = [(number, response) for number, tree in enumerate(trees) for response in tree.responses]
    batches = []
    for piece in np.array_split(np.arange(len(flat)), min(parts, len(flat))):
        chosen = [flat[place] for place in piece]
        numbers = sorted({number for number, _ in chosen})
        batches.append([TreeInput(prompt=trees[n].prompt, responses=[r for m, r in chosen if m == n]) for n in numbers])
    return batches


def plain_pass(bench: Bench, trees: list[TreeInput], weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    log_probs = plain_log_probs(bench.policy, trees, pixels=bench.pixels, temperature=0.7)
    (log_probs * weights).sum().backward()
    return log_probs.detach(), take_gradients(bench.policy)


def differences(bench: Bench, trees: list[TreeInput], *, parts: int = 1) -> tuple[float, float]:
    """Relative differences of log-probs and of gradients between the two forms."""
    weights = token_weights(trees)
    tree, plain = tree_pass(bench, trees, weights, parts=parts), plain_pass(bench, trees, weights)
    return relative_difference(tree[0], plain[0]), relative_difference(tree[1], plain[1])


def gradient_tolerance(bench: Bench) -> float:
    return 5 * TOLERANCE if carries_state(bench.policy.model) else TOLERANCE


@pytest.mark.parametrize("gradient_checkpointing", [False, True], ids=["stored", "recomputed"])
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=settings.default.max_examples // 7, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_tree_and_plain_forward_agree_in_log_probs_and_gradients(family, gradient_checkpointing, data, bench_of):
    bench = bench_of(family, gradient_checkpointing=gradient_checkpointing)
    shapes = tree_shapes(max_images=2 if family in VISION_FAMILIES else 0)
    drawn = data.draw(st.lists(shapes, min_size=1, max_size=3))
    trees = [bench.tree(*shape, seed=number) for number, shape in enumerate(drawn)]
    log_probs, gradients = differences(bench, trees, parts=data.draw(st.integers(1, 3)))
    assert log_probs < TOLERANCE, f"log-probs differ by {log_probs:.1e} of their norm"
    assert gradients < gradient_tolerance(bench), f"gradients differ by {gradients:.1e} of their norm"


@pytest.mark.parametrize("family", FAMILIES)
def test_no_image_images_videos_single_tokens_and_a_split_group_agree(family, bench_of):
    bench = bench_of(family, gradient_checkpointing=False)
    trees = [
        bench.tree([5], [], [1, 4, 7], seed=0),
        bench.tree([1], [], [1], seed=1),
        bench.tree([3], [], [1, 1], seed=2),
    ]
    if family in VISION_FAMILIES:
        trees += [
            bench.tree([2, 3], ["wide-1"], [1, 6], seed=3),
            bench.tree([1, 2, 1], ["square-1", "tall-2"], [5, 1, 3], seed=4),
        ]
    if family in VIDEO_FAMILIES:
        trees += [
            bench.tree([1, 2], [], [4, 2], videos=[clip("small", frames=20, fps=0.7)], seed=5),
            bench.tree([2, 1, 1, 3], ["tall-1"], [3, 2], videos=[clip("wide"), clip("square", frames=2)], seed=6),
        ]
    for parts in (1, 4):
        log_probs, gradients = differences(bench, trees, parts=parts)
        assert log_probs < TOLERANCE
        assert gradients < gradient_tolerance(bench)
