"""Trying the reward on the ground truth, before anything expensive starts (design contract 8)."""

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jinja2
from jinja2.sandbox import SandboxedEnvironment

from rl_core.config.reward import RewardConfig
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.registry import resolve_rewards
from rl_core.rewards.routing import Routing
from rl_core.rewards.sample import RewardSample
from rl_core.types import Prompt, Score

_ANSWER = "ANSWER"
USUAL_FORMS = (
    "<think>I think.</think>\n\\boxed{ANSWER}",
    "<think>I think.</think>\n<answer>ANSWER</answer>",
    "<think>I think.</think>\n<answer>\\boxed{ANSWER}</answer>",
    "I think.\nAnswer: ANSWER",
    "I think.\n#### ANSWER",
)
"""What responses look like that rewards in the field read; a user's reward is tried on all of them, because which one
it reads is known to its author alone."""

_IN_EVERY_FORM = (
    ", bare and in every usual form (in \\boxed{}, in <answer></answer>, after `Answer:` and ####): look at the answers"
    " and the reward; if it reads another form than these, nothing is wrong"
)

_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")


class _Trial(NamedTuple):
    response: str
    score: Score


@dataclass(frozen=True, kw_only=True, slots=True)
class GroundTruthTrial:
    """How the reward judged the true answers.

    Attributes:
        responses: The true answer of each prompt, in the form that the reward calls right, where there is one.
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
            the form that a built-in reward gives its full score to; a reward of the user's is tried on the bare answer
            and all USUAL_FORMS.
        accuracy_key: The component that evaluation will read (`evaluation.accuracy_key`).
        filter_key: The one that groups are filtered by (`algorithm.online_filtering.filter_key`); None for none.
    """
    try:
        routing = resolve_rewards(config)
        forms = [_forms(prompt, routing, target_template) for prompt in prompts]
    except ValueError as error:
        return GroundTruthTrial(problems=f"{error}".splitlines())
    except jinja2.TemplateError as error:
        return GroundTruthTrial(problems=f"{error}".splitlines()[:1])
    trials = _try(config, prompts, forms)
    best = [max(of_prompt, key=lambda trial: _rank(trial, accuracy_key)) for of_prompt in trials]
    names = [_name_of(prompt, routing) for prompt in prompts]
    read = {"evaluation.accuracy_key": accuracy_key}
    if filter_key is not None:
        read["algorithm.online_filtering.filter_key"] = filter_key
    scores = [trial.score for trial in best]
    return GroundTruthTrial(
        responses=[trial.response for trial in best],
        scores=scores,
        problems=_problems(names, prompts, scores, read),
        warnings=[*_wrong(names, prompts, trials, accuracy_key), *_fragile(names, trials)],
    )


def _forms(prompt: Prompt, routing: Routing, target_template: str | None) -> list[str]:
    """The responses that say the true answer, one of which the reward should call right."""
    if target_template is not None:
        template = SandboxedEnvironment(undefined=jinja2.StrictUndefined).from_string(target_template)
        return [template.render(answer=prompt.answer_text, question=prompt.question)]
    route = routing.route_of(prompt.data_source)
    source = None if route is None else routing.specs[route.terms[0].lane].source
    if isinstance(source, str):
        return [str(importlib.import_module(source).exemplar(prompt.answer_text))]
    return [prompt.answer_text, *(form.replace(_ANSWER, prompt.answer_text) for form in USUAL_FORMS)]


def _try(config: RewardConfig, prompts: Sequence[Prompt], forms: Sequence[Sequence[str]]) -> list[list[_Trial]]:
    """[prompt][form] what came of it."""
    samples = [
        RewardSample.of_text(prompt, text, sample_index=place, response_length=_plausible_length(text))
        for prompt, texts in zip(prompts, forms, strict=True)
        for place, text in enumerate(texts)
    ]
    with RewardPool(config.model_copy(update={"workers": 1})) as pool:
        scores = iter(pool.score_all(samples))
    return [[_Trial(text, next(scores)) for text in texts] for texts in forms]


def _plausible_length(response: str) -> int:
    """Tokens, about: words, marks and the end of the sequence. The tokenizer need not be there yet, and a reward that
    divides by the length must not meet 0, which no sampled response has."""
    return len(_WORD_OR_MARK.findall(response)) + 1


def _rank(trial: _Trial, accuracy_key: str) -> tuple[bool, bool]:
    return _is_right(trial.score, accuracy_key), trial.score.error is None


def _is_right(score: Score, accuracy_key: str) -> bool:
    return score.error is None and score.components.get(accuracy_key, score.overall) > 0.0


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


def _wrong(
    names: Sequence[str], prompts: Sequence[Prompt], trials: Sequence[Sequence[_Trial]], accuracy_key: str
) -> list[str]:
    """True answers that are called wrong in every form."""
    wrong: dict[tuple[str, bool], list[str]] = {}
    for name, prompt, forms in zip(names, prompts, trials, strict=True):
        judged = [trial.score for trial in forms if trial.score.error is None]
        if judged and not any(_is_right(score, accuracy_key) for score in judged):
            wrong.setdefault((name, len(forms) > 1), []).append(prompt.uid)
    return [
        f"{name} calls the true answer wrong for {_few(uids)} (of {names.count(name)} tried)"
        + (_IN_EVERY_FORM if was_guessed else ": look at the answers' form, the target template and the reward")
        for (name, was_guessed), uids in wrong.items()
    ]


def _fragile(names: Sequence[str], trials: Sequence[Sequence[_Trial]]) -> list[str]:
    """Rewards that judge one form of the answer and fail on another."""
    failures: dict[tuple[str, str], str] = {}
    for name, forms in zip(names, trials, strict=True):
        if any(trial.score.error is None for trial in forms):
            for response, score in forms:
                if score.error is not None:
                    failures.setdefault((name, score.error), response)
    return [
        f"{name} fails on the response {response!r:.80} ({reason}): every response of such a form costs its sample, "
        "and more than reward.max_failed_share of them the run; return a score for it"
        for (name, reason), response in failures.items()
    ]


def _few(uids: Sequence[str]) -> str:
    shown = ", ".join(uids[:3])
    return f"row {shown}" if len(uids) == 1 else f"{len(uids)} rows ({shown}{', ...' if len(uids) > 3 else ''})"
