"""Experts, of which a token goes through a few that its router chooses.

In bfloat16 generator and trainer choose other ones for some tokens, because they round in different ways, and then
their log-probs differ by more than rounding alone makes them. A model in which every token goes through all experts
leaves nothing to choose, and each weight still counts.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from rl_core.files import atomic_write_json, link_or_copy, read_json
from tasks.device_check.check import Setting

_CHOSEN: Final = ("num_experts_per_tok", "top_k_experts")
"""Names of the number of experts that a token goes through."""

_NUMBERS: Final = ("num_experts", "num_local_experts", "n_routed_experts")
"""Names of the number of experts of a layer in configs of transformers."""


def choice_fields(text: Mapping[str, Any]) -> tuple[str, str] | None:
    """The fields of a text config with its number of experts, and with how many of them a token goes through; None
    where it has none, or a token goes through all."""
    number, chosen = (next((name for name in names if text.get(name)), None) for names in (_NUMBERS, _CHOSEN))
    return None if number is None or chosen is None or text[number] == text[chosen] else (number, chosen)


def without_choice(setting: Setting) -> Setting:
    """The setting with a model of the same weights, of whose experts every token goes through all; itself where there
    is nothing to choose."""
    assert setting.model is not None, "a check of a given model"
    fields = read_json(setting.model / "config.json")
    text = fields.get("text_config", fields)
    names = choice_fields(text)
    if names is None:
        return setting
    number, chosen = names
    text[chosen] = text[number]
    if text.get("n_group"):
        text["topk_group"] = text["n_group"]
    folder = setting.folder / "without-choice"
    folder.mkdir(exist_ok=True)
    for path in setting.model.iterdir():
        if path.name != "config.json":
            link_or_copy(path, folder / path.name)
    atomic_write_json(folder / "config.json", fields)
    return replace(setting, model=folder)
