"""What a function of each form gets, and what it returns: EasyR1's, TRL's and verl's, as these call it."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rl_core.rewards.components import OVERALL
from rl_core.rewards.sample import RewardSample

TRL_TRAINERS: Final = ("trainer_state", "log_extra", "log_metric", "environments")
"""Arguments of TRL's that only its trainer has."""

_TRL_OWN = ("prompts", "completions", "completion_ids")
_PICTURES = ("image", "images")

GIVEN: Final[Mapping[str, Sequence[str]]] = {
    "trl": (*_TRL_OWN, *_PICTURES),
    "verl": ("data_source", "solution_str", "ground_truth", "extra_info"),
    "verl_batch": ("data_sources", "solution_strs", "ground_truths", "extra_infos"),
}
"""[style] -> the arguments that a function gets by their names; in TRL's form every column of the rows besides."""

_SCORE = "score"


def accepted_names(function: Callable[..., object]) -> frozenset[str] | None:
    """The keywords that a function accepts; None if it accepts any, or has no signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return frozenset(parameter.name for parameter in parameters if parameter.kind in by_name)


def easyr1_input(sample: RewardSample) -> dict[str, Any]:
    """The dict that EasyR1 passes to a reward function (`workers/reward/function.py`)."""
    return {
        "response": sample.response,
        "response_length": sample.response_length,
        "ground_truth": sample.ground_truth,
    }


def trl_arguments(
    samples: Sequence[RewardSample],
    *,
    answer_names: Sequence[str],
    reads_messages: bool,
    accepted: frozenset[str] | None,
) -> dict[str, list[Any]]:
    """The keyword arguments of one call: a list with an item for each sample, None where its row has no such column.
    Pictures are only decoded for a function that names them."""
    columns = dict.fromkeys(name for sample in samples for name in sample.extra)
    arguments: dict[str, list[Any]] = {name: [sample.extra.get(name) for sample in samples] for name in columns}
    for name in answer_names:
        arguments.setdefault(name, [sample.ground_truth for sample in samples])
    questions, responses = [sample.question for sample in samples], [sample.response for sample in samples]
    if reads_messages:
        arguments["prompts"] = [[{"role": "user", "content": text}] for text in questions]
        arguments["completions"] = [[{"role": "assistant", "content": text}] for text in responses]
    else:
        arguments["prompts"], arguments["completions"] = [*questions], [*responses]
    arguments["completion_ids"] = [list(sample.response_ids) for sample in samples]
    if accepted is None:
        return arguments
    if asked := [name for name in _PICTURES if name in accepted and name not in arguments]:
        pictures = [sample.images() for sample in samples]
        first = [shown[0] if shown else None for shown in pictures]
        for name in asked:
            arguments[name] = pictures if name == "images" else first
    return {name: values for name, values in arguments.items() if name in accepted}


def verl_arguments(sample: RewardSample, *, accepted: frozenset[str] | None) -> dict[str, Any]:
    """The keyword arguments of a call with one response."""
    arguments = dict(zip(GIVEN["verl"], _verl_values(sample), strict=True))
    return arguments if accepted is None else {name: arguments[name] for name in arguments if name in accepted}


def verl_batch_arguments(samples: Sequence[RewardSample], *, accepted: frozenset[str] | None) -> dict[str, list[Any]]:
    """The keyword arguments of a call with many responses: a list with an item for each."""
    lists = map(list, zip(*map(_verl_values, samples), strict=True))
    arguments = dict(zip(GIVEN["verl_batch"], lists, strict=True))
    return arguments if accepted is None else {name: arguments[name] for name in arguments if name in accepted}


def _verl_values(sample: RewardSample) -> tuple[Any, ...]:
    """verl's files have columns `data_source` and `extra_info`; without the latter it is a dict of all columns."""
    source = sample.extra.get("data_source", sample.data_source)
    info = sample.extra.get("extra_info")
    return source, sample.response, sample.ground_truth, dict(info if isinstance(info, Mapping) else sample.extra)


def verl_result(returned: object) -> object:
    """A number or None as it is; of a dict its `score` as `overall`, and its other numbers. Raises ValueError where a
    dict has no `score`."""
    if not isinstance(returned, Mapping):
        return returned
    if _SCORE not in returned:
        raise ValueError(f"returned a dict without `{_SCORE}`, only {sorted(map(str, returned))}")
    if returned[_SCORE] is None:
        return None
    others = {name: value for name, value in returned.items() if name not in (_SCORE, OVERALL)}
    return {OVERALL: returned[_SCORE], **{name: value for name, value in others.items() if hasattr(value, "__float__")}}
