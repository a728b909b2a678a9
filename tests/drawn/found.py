"""Drawn configurations that once ended in neither a sentence nor a step, with what is wrong with them."""

from typing import Any

from rl_core.config.loading import merge_trees
from tests.drawn.profiles import FEW, Tree

_LLAMA = FEW[4]


def _llama(**parts: Any) -> Tree:
    """What the defect needs of the drawn tree, and no more."""
    rest = {"reward": {"function": "count"}, "data": {"rollout_batch_size": 2}, "actor": {"global_batch_size": 1}}
    return merge_trees(_LLAMA, {**rest, **parts})


FOUND: dict[str, tuple[Tree, str]] = {
    "no kernel for heads of 16": (_llama(model={"source": {"hidden_size": 32}}), "model.source.hidden_size"),
    "an adapted output head": (
        _llama(model={"lora": {"target_modules": ["lm_head"], "exclude_modules": None}}),
        "model.lora.target_modules",
    ),
    "a pattern that is none": (_llama(model={"lora": {"target_modules": "(q_proj"}}), "model.lora.target_modules"),
    "a filter that looks for nothing": (
        _llama(algorithm={"online_filtering": {"filter_key": "nothing"}}),
        "algorithm.online_filtering.filter_key",
    ),
}
