"""Trying the reward on the ground truth, before anything expensive starts (design contract 8)."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import jinja2
from jinja2.sandbox import SandboxedEnvironment

from rl_core.config.reward import RewardConfig
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.registry import resolve_rewards
from rl_core.rewards.routing import Routing
from rl_core.rewards.sample import RewardSample
from rl_core.types import Prompt, Score


@dataclass(frozen=True, kw_only=True, slots=True)
class GroundTruthTrial:
    """How the reward judged the true answers.

    Attributes:
        responses: The true answer of each prompt, in the form that was scored.
        scores: One a prompt.
        problems: Sentences about what would stop the run; empty when all is well.
        warnings: Sentences about what looks wrong and may be meant.
    """

    responses: Sequence[str] = ()
    scores: Sequence[Score] = ()
    problems: Sequence[str]
    warnings: Sequence[str] = ()


def try_on_ground_truth(
    config: RewardConfig,
    prompts: Sequence[Prompt],
    *,
    target_template: str | None,
    accuracy_key: str,
    filter_key: str | None = None,
) -> GroundTruthTrial:
    """Score the true answers of a few prompts in a pool of one process, which ends before this returns.

    Args:
        config: The reward.
        prompts: Some rows; all of them are tried.
        target_template: Jinja text (variables `answer`, `question`) that turns an answer into a response; null takes
            the form that a built-in reward gives its full score to, and the bare answer for a reward of the user's.
        accuracy_key: The component that evaluation will read (`evaluation.accuracy_key`).
        filter_key: The one that groups are filtered by (`algorithm.online_filtering.filter_key`); None for none.
    """
    try:
        routing = resolve_rewards(config)
        responses = [_response(prompt, routing, target_template) for prompt in prompts]
    except ValueError as error:
        return GroundTruthTrial(problems=f"{error}".splitlines())
    except jinja2.TemplateError as error:
        return GroundTruthTrial(problems=f"{error}".splitlines()[:1])
    samples = [RewardSample.of_text(prompt, text) for prompt, text in zip(prompts, responses, strict=True)]
    with RewardPool(config.model_copy(update={"workers": 1})) as pool:
        scores = pool.score_all(samples)
    names = [_name_of(prompt, routing) for prompt in prompts]
    read = {"evaluation.accuracy_key": accuracy_key}
    if filter_key is not None:
        read["algorithm.online_filtering.filter_key"] = filter_key
    return GroundTruthTrial(
        responses=responses,
        scores=scores,
        problems=_problems(names, prompts, scores, read),
        warnings=_warnings(names, prompts, scores, accuracy_key),
    )


def _response(prompt: Prompt, routing: Routing, target_template: str | None) -> str:
    if target_template is not None:
        template = SandboxedEnvironment(undefined=jinja2.StrictUndefined).from_string(target_template)
        return template.render(answer=prompt.answer, question=prompt.question)
    route = routing.route_of(prompt.data_source)
    source = None if route is None else routing.specs[route.terms[0].lane].source
    return str(importlib.import_module(source).exemplar(prompt.answer)) if isinstance(source, str) else prompt.answer


def _name_of(prompt: Prompt, routing: Routing) -> str:
    route = routing.route_of(prompt.data_source)
    return "reward" if route is None else f"reward {route.name!r}"


def _problems(
    names: Sequence[str], prompts: Sequence[Prompt], scores: Sequence[Score], read: Mapping[str, str]
) -> list[str]:
    """Failed scores, and components that are missing of those that are `read`, by the key that names each."""
    rows_of: dict[tuple[str, str], list[str]] = {}
    for name, prompt, score in zip(names, prompts, scores, strict=True):
        for reason in _reasons(score, read):
            rows_of.setdefault((name, reason), []).append(prompt.uid)
    return [f"{name} on the ground truth of {_few(uids)}: {why}" for (name, why), uids in rows_of.items()]


def _reasons(score: Score, read: Mapping[str, str]) -> Iterator[str]:
    if score.error is not None:
        yield score.error
        return
    known = ", ".join(sorted(score.components))
    for key, component in read.items():
        if component not in score.components:
            yield f"its components ({known}) lack {component!r}: name one of them as {key}"


def _warnings(names: Sequence[str], prompts: Sequence[Prompt], scores: Sequence[Score], accuracy_key: str) -> list[str]:
    wrong: dict[str, list[str]] = {}
    for name, prompt, score in zip(names, prompts, scores, strict=True):
        if score.error is None and score.components.get(accuracy_key, score.overall) <= 0.0:
            wrong.setdefault(name, []).append(prompt.uid)
    return [
        f"{name} calls the true answer wrong for {_few(uids)} (of {names.count(name)} tried): "
        "look at the answers' form, the target template and the reward"
        for name, uids in wrong.items()
    ]


def _few(uids: Sequence[str]) -> str:
    shown = ", ".join(uids[:3])
    return f"row {shown}" if len(uids) == 1 else f"{len(uids)} rows ({shown}{', ...' if len(uids) > 3 else ''})"
