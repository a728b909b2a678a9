"""What a run answered to its held-out prompts while it trained."""

from collections.abc import Sequence

from rl_core.evaluation.items import EvaluationItem, read_items
from rl_core.records.metrics_log import step_files
from rl_core.run_directory import RunDirectory

StepAnswers = Sequence[tuple[int, EvaluationItem]]
"""(step, the first answer after it) of one prompt, in the order of the steps."""

SHOWN_STEPS = 8
"""A page shows so many validations at most; `sightline show --validation --step N` shows each."""


def validated_steps(run: RunDirectory) -> list[int]:
    """The steps after which held-out prompts were answered, in order."""
    return [step for step, _ in step_files(run.validation(0).parent)]


def validation_history(run: RunDirectory) -> dict[str, StepAnswers]:
    """[uid] the answers to each held-out prompt, in the order in which they were asked: those of the first validation,
    of the newest one, and of some between them at even distances."""
    history: dict[str, list[tuple[int, EvaluationItem]]] = {}
    for step in spread(validated_steps(run), SHOWN_STEPS):
        for item in read_items(run.validation(step)):
            if item.sample_index == 0:
                history.setdefault(item.uid, []).append((step, item))
    return dict(history)


def spread(steps: Sequence[int], most: int) -> list[int]:
    """At most `most` (2 or more) of the steps, the first and the last among them, at distances as even as can be."""
    if len(steps) <= most:
        return list(steps)
    return [steps[round(place * (len(steps) - 1) / (most - 1))] for place in range(most)]
