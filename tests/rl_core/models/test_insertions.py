"""Branches with what an environment has put between the model's turns: the same numbers as plain sequences, and no part
of any loss."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_core.models.packing import TreeInput
from rl_core.types import Insertion, Int32Array, Prompt
from tests.rl_core.models.builders import VISION_FAMILIES, Bench, ModelFolder
from tests.rl_core.models.plain import plain_log_probs

IMAGES_OF_TURNS = ([[]], [["small-1"]], [["wide-2", "tall-3"], []], [["small-4"], ["square-5", "small-4", "wide-6"]])


def turns_alone(tree: TreeInput) -> Iterator[tuple[Prompt, Int32Array]]:
    """Each turn of the model as the response to a prompt with all that came before it."""
    for response, puts in zip(tree.responses, tree.insertions, strict=True):
        prompt, done = tree.prompt, 0
        for put in puts:
            turn, done = response[done : put.after], put.after
            yield prompt, turn
            prompt = replace(
                prompt,
                token_ids=np.concatenate([prompt.token_ids, turn, put.token_ids]),
                engine_token_ids=np.concatenate([prompt.engine_token_ids, turn, put.engine_token_ids]),
                image_uids=(*prompt.image_uids, *put.image_uids),
            )
        yield prompt, response[done:]


def conversation_tree(bench: Bench, images_of_turns: Sequence[Sequence[Sequence[str]]], *, seed: int = 0) -> TreeInput:
    """A prompt with an image where the family sees; each response has an insertion for each list of images."""
    rng = np.random.default_rng(seed)
    sees = bench.vision.image_token_id is not None
    bare = bench.tree([5, 4] if sees else [7], ["wide-1"] if sees else [], [9] * len(images_of_turns), seed=seed)
    insertions = []
    for images in images_of_turns:
        ends = np.sort(rng.choice(np.arange(1, 9), len(images), replace=False))
        insertions.append([_insertion(bench, int(end), uids) for end, uids in zip(ends, images, strict=True)])
    return replace(bare, insertions=insertions)


def _insertion(bench: Bench, after: int, uids: Sequence[str]) -> Insertion:
    shown = bench.prompt([2] * (len(uids) + 1), uids, seed=after)
    return Insertion(
        after=after,
        token_ids=shown.token_ids,
        engine_token_ids=shown.engine_token_ids,
        turn="",
        image_uids=tuple(uids),
    )


@pytest.mark.parametrize("family", [*VISION_FAMILIES, "qwen2_5"])
def test_each_turn_has_the_log_probs_of_a_sequence_of_its_own(family: str, model_folder: ModelFolder) -> None:
    bench = Bench.load(model_folder(family))
    cases = IMAGES_OF_TURNS if family in VISION_FAMILIES else ([[]], [[], [], []])
    tree = conversation_tree(bench, cases)
    other = bench.tree([6], [], [3, 1], seed=5)  # of one turn, in the same pass
    with torch.no_grad():
        packed = bench.pack([tree, other])
        found = bench.policy(packed, temperature=1.0).log_probs[: sum(map(len, tree.responses))]
        alone = [
            plain_log_probs(
                bench.policy, [TreeInput(prompt=prompt, responses=[turn])], pixels=bench.pixels, temperature=1.0
            )
            for prompt, turn in turns_alone(tree)
        ]
    assert packed.targets.tolist()[: len(found)] == np.concatenate(tree.responses).tolist()
    torch.testing.assert_close(found, torch.cat(alone), atol=2e-5, rtol=1e-4)


def test_inserted_tokens_are_read_and_not_learned(model_folder: ModelFolder) -> None:
    """The control has the same tokens as a response of one turn: what it says of the model's own tokens is equal, and
    its gradient is not."""
    bench = Bench.load(model_folder("qwen2_vl"))
    tree = conversation_tree(bench, [[[], []]])
    (branch,) = tree.branches
    as_targets = TreeInput(prompt=tree.prompt, responses=[branch.token_ids])
    with torch.no_grad():
        own = bench.policy(bench.pack([tree]), temperature=1.0).log_probs
        every = bench.policy(bench.pack([as_targets]), temperature=1.0).log_probs
    assert len(own) == len(tree.responses[0]) < len(every)
    assert torch.equal(own, every[branch.places])
    learned = _gradient(bench, tree)
    assert (learned - _gradient(bench, as_targets)).abs().max() > 0.1 * learned.abs().max()


def _gradient(bench: Bench, tree: TreeInput) -> torch.Tensor:
    bench.policy.zero_grad()
    bench.policy(bench.pack([tree]), temperature=1.0).log_probs.sum().backward()
    return torch.cat([p.grad.flatten() for p in bench.policy.parameters() if p.grad is not None])


def test_the_gradient_of_a_group_is_that_of_its_responses_one_by_one(model_folder: ModelFolder) -> None:
    bench = Bench.load(model_folder("qwen2_5_vl"))
    tree = conversation_tree(bench, IMAGES_OF_TURNS)
    alone = [
        TreeInput(prompt=tree.prompt, responses=[response], insertions=[puts])
        for response, puts in zip(tree.responses, tree.insertions, strict=True)
    ]
    together = _gradient(bench, tree)
    torch.testing.assert_close(together, sum(_gradient(bench, one) for one in alone), atol=1e-4, rtol=1e-3)


def test_an_insertion_whose_tokens_do_not_fit_its_image_is_named(model_folder: ModelFolder) -> None:
    bench = Bench.load(model_folder("qwen2_5_vl"))
    tree = conversation_tree(bench, [[["small-1"]]])
    ((put,),) = tree.insertions
    bad = replace(tree, insertions=[[replace(put, image_uids=("square-1",))]])
    with pytest.raises(ValueError, match=r"an insertion: 4 placeholders .token \d+., but its images or videos make 9"):
        bench.pack([bad])
