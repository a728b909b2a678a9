"""The responses to held-out prompts during training."""

from collections.abc import Sequence

from rl_core.evaluation.items import EvaluationItem, read_items
from rl_core.records.metrics_log import step_files
from rl_core.run_directory import RunDirectory

StepAnswers = Sequence[tuple[int, EvaluationItem]]
"""(step, first response to a prompt after this step), in the order of the steps."""

SHOWN_STEPS = 8
"""Largest number of validations on a page; `sightline show --validation --step N` shows every one."""


def validated_steps(run: RunDirectory) -> list[int]:
    """The steps with a validation, in order."""
    return [step for step, _ in step_files(run.validation(0).parent)]


def validation_history(run: RunDirectory) -> dict[str, StepAnswers]:
    """[uid] -> responses to each held-out prompt, in first and newest validations and some evenly between."""
    history: dict[str, list[tuple[int, EvaluationItem]]] = {}
    for step in spread(validated_steps(run), SHOWN_STEPS):
        for item in read_items(run.validation(step)):
            if item.sample_index == 0:
                history.setdefault(item.uid, []).append((step, item))
    return dict(history)


def spread(steps: Sequence[int], most: int) -> list[int]:
    """Choose at most `most` (2 or more) steps, with the first and the last, at distances as even as possible."""
    if len(steps) <= most:
        return list(steps)
    return [steps[round(place * (len(steps) - 1) / (most - 1))] for place in range(most)]
