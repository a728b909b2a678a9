"""The base model's answers to the held-out prompts. A validation before the first step and the evaluation of the base
model ask for the same ones, so whichever comes second takes those of the first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rl_core.digests import hash_file
from rl_core.evaluation.items import EvaluationItem, Mode, read_items
from rl_core.files import atomic_write_json, read_json


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseAnswers:
    """The answers that are known, by mode, and a digest of all that they depend on."""

    key: str
    items: Mapping[Mode, Sequence[EvaluationItem]] = field(default_factory=dict)


def note_answers(validation: Path, key: str) -> None:
    """Note, beside the file of a validation, what its answers depend on."""
    atomic_write_json(_note_of(validation), {"key": key, "sha256": hash_file(validation)})


def noted_answers(validation: Path, key: str) -> dict[Mode, list[EvaluationItem]]:
    """The answers in the file of a validation, if they depend on the same and each has a score: a reward that had no
    score for one is asked again. Empty where there are none, or the file is another one now."""
    try:
        note = read_json(_note_of(validation))
        if note != {"key": key, "sha256": hash_file(validation)}:
            return {}
    except (OSError, ValueError):
        return {}
    return scored({items[0].mode: items} if (items := read_items(validation)) else {})


def scored(items: Mapping[Mode, list[EvaluationItem]]) -> dict[Mode, list[EvaluationItem]]:
    """The modes in which each answer has a score."""
    return {mode: of_mode for mode, of_mode in items.items() if all(item.error is None for item in of_mode)}


def _note_of(validation: Path) -> Path:
    return validation.with_suffix(".json")
