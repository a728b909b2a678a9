"""Trying the reward on the true answers of some rows, before anything expensive starts (docs/architecture.md, "Bad
input is named")."""

import importlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rl_core.config.reward import RewardConfig
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.registry import resolve_rewards
from rl_core.rewards.routing import Routing
from rl_core.rewards.sample import RewardSample
from rl_core.templates import TextTemplate, target_template
from rl_core.types import Prompt, Score

_ANSWER = "ANSWER"
USUAL_FORMS = (
    _ANSWER,
    "<think>I think.</think>\n\\boxed{ANSWER}",
    "<think>I think.</think>\n<answer>ANSWER</answer>",
    "<think>I think.</think>\n<answer>\\boxed{ANSWER}</answer>",
    "I think.\nAnswer: ANSWER",
    "I think.\n#### ANSWER",
)
"""The usual forms of a response. A user's reward is tried on all of them, because only its author knows which one it
reads."""

_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")

_IN_EVERY_FORM = (
    ", alone and in every usual form (in \\boxed{}, in <answer></answer>, after `Answer:` and ####): check the answers"
    " and the reward; if it reads a different form, nothing is wrong"
)


@dataclass(kw_only=True, slots=True)
class _TrueAnswer:
    """A row, responses that give its true answer in several forms, and [index of a form] -> its score, of the forms
    that were tried."""

    reward: str
    prompt: Prompt
    forms: Sequence[str]
    scores: dict[int, Score] = field(default_factory=dict)

    def best(self, accuracy_key: str) -> int:
        """The index of the first form that is called right, else of the first with a score, else of the first."""

        def rank(form: int) -> tuple[bool, bool]:
            score = self.scores[form]
            return _is_right(score, accuracy_key), score.error is None

        return max(self.scores, key=rank)

    @property
    def is_judged(self) -> bool:
        return any(score.error is None for score in self.scores.values())

    def is_called_right(self, accuracy_key: str) -> bool:
        return any(_is_right(score, accuracy_key) for score in self.scores.values())


def _is_right(score: Score, accuracy_key: str) -> bool:
    return score.error is None and score.components.get(accuracy_key, score.overall) > 0.0


def _true_answers(prompts: Sequence[Prompt], routing: Routing, template_text: str | None) -> list[_TrueAnswer]:
    """The rows, none of them scored. Raises ValueError when the template is wrong or cannot render an answer."""
    template = None if template_text is None else target_template(template_text)
    return [
        _TrueAnswer(reward=_name_of(prompt, routing), prompt=prompt, forms=_forms(prompt, routing, template))
        for prompt in prompts
    ]


def _score_forms(answers: Sequence[_TrueAnswer], config: RewardConfig, *, accuracy_key: str) -> None:
    """Score the answers in a pool of one process.

    The first row of each reward is tried in all its forms. Its other rows are tried in the form that was best for the
    first one, and in all forms only if that one is not called right. A reward that gave no score for its first row and
    reached its time limit is not tried on its other rows.
    """
    first = {answer.reward: answer for answer in reversed(answers)}
    others = [answer for answer in answers if answer is not first[answer.reward]]
    with RewardPool(config.model_copy(update={"workers": 1})) as pool:
        began = time.monotonic()
        _score(pool, [(answer, form) for answer in first.values() for form in range(len(answer.forms))])
        is_slow = time.monotonic() - began > config.timeout_seconds
        asked = [answer for answer in others if first[answer.reward].is_judged or not is_slow]
        _score(pool, [(answer, first[answer.reward].best(accuracy_key)) for answer in asked])
        wrong = [a for a in asked if first[a.reward].is_judged and not a.is_called_right(accuracy_key)]
        _score(pool, [(a, form) for a in wrong for form in range(len(a.forms)) if form not in a.scores])


def _score(pool: RewardPool, pairs: Sequence[tuple[_TrueAnswer, int]]) -> None:
    samples = [
        RewardSample.of_text(
            answer.prompt,
            answer.forms[form],
            sample_index=form,
            response_length=_plausible_length(answer.forms[form]),
        )
        for answer, form in pairs
    ]
    for (answer, form), score in zip(pairs, pool.score_all(samples), strict=True):
        answer.scores[form] = score


def _plausible_length(response: str) -> int:
    # There may be no tokenizer yet, and a reward may divide by the length.
    return len(_WORD_OR_MARK.findall(response)) + 1


def _forms(prompt: Prompt, routing: Routing, template: TextTemplate | None) -> list[str]:
    if template is not None:
        return [template.render(answer=prompt.answer_text, question=prompt.question)]
    route = routing.route_of(prompt.data_source)
    source = None if route is None else routing.specs[route.terms[0].function_index].source
    if isinstance(source, str):
        return [str(importlib.import_module(source).exemplar(prompt.answer_text))]
    return [form.replace(_ANSWER, prompt.answer_text) for form in USUAL_FORMS]


def _name_of(prompt: Prompt, routing: Routing) -> str:
    route = routing.route_of(prompt.data_source)
    return "reward" if route is None else f"reward {route.name!r}"


@dataclass(frozen=True, kw_only=True, slots=True)
class GroundTruthTrial:
    """The answer of each prompt in a form that the reward calls right, if there is one, with its score; what would stop
    the run; and what looks wrong but may be intended."""

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
    """Score the true answers of a few prompts.

    Args:
        target_template: Jinja text (variables `answer`, `question`) that turns an answer into a response. If None, a
            built-in reward is tried on the form that it gives its full score, and a user's reward on all USUAL_FORMS.
        accuracy_key: The component that evaluation will read (`evaluation.accuracy_key`).
        filter_key: The component that groups are filtered by (`algorithm.online_filtering.filter_key`), if any.
    """
    try:
        answers = _true_answers(prompts, resolve_rewards(config), target_template)
    except ValueError as error:
        return GroundTruthTrial(problems=f"{error}".splitlines())
    _score_forms(answers, config, accuracy_key=accuracy_key)
    answers = [answer for answer in answers if answer.scores]
    best = [answer.best(accuracy_key) for answer in answers]
    scores = [answer.scores[form] for answer, form in zip(answers, best, strict=True)]
    read = {"evaluation.accuracy_key": accuracy_key}
    if filter_key is not None:
        read["algorithm.online_filtering.filter_key"] = filter_key
    return GroundTruthTrial(
        responses=[answer.forms[form] for answer, form in zip(answers, best, strict=True)],
        scores=scores,
        problems=_problems(answers, scores, read),
        warnings=[*_wrong(answers, accuracy_key), *_fragile(answers)],
    )


def _problems(answers: Sequence[_TrueAnswer], scores: Sequence[Score], read: Mapping[str, str]) -> list[str]:
    """Failed scores, and missing components. `read`: [key of the config] -> the component that it names."""
    rows_of: dict[tuple[str, str], list[str]] = {}
    for answer, score in zip(answers, scores, strict=True):
        for reason in _reasons(score, read):
            rows_of.setdefault((answer.reward, reason), []).append(answer.prompt.uid)
    return [f"{name} on the ground truth of {_few(uids)}: {why}" for (name, why), uids in rows_of.items()]


def _reasons(score: Score, read: Mapping[str, str]) -> Iterator[str]:
    if score.error is not None:
        yield score.error
        return
    known = ", ".join(sorted(score.components))
    for key, component in read.items():
        if component not in score.components:
            yield f"its components ({known}) lack {component!r}: name one of them as {key}"


def _wrong(answers: Sequence[_TrueAnswer], accuracy_key: str) -> list[str]:
    wrong: dict[tuple[str, bool], list[str]] = {}
    for answer in answers:
        if answer.is_judged and not answer.is_called_right(accuracy_key):
            wrong.setdefault((answer.reward, len(answer.forms) > 1), []).append(answer.prompt.uid)
    tried = [answer.reward for answer in answers]
    return [
        f"{name} calls the true answer wrong for {_few(uids)} (of {tried.count(name)} tried)"
        + (_IN_EVERY_FORM if was_guessed else ": check the form of the answers, the target template and the reward")
        for (name, was_guessed), uids in wrong.items()
    ]


def _fragile(answers: Sequence[_TrueAnswer]) -> list[str]:
    """Rewards that score one form of an answer and fail on another."""
    failures: dict[tuple[str, str], str] = {}
    for answer in answers:
        for form, score in answer.scores.items():
            if answer.is_judged and score.error is not None:
                failures.setdefault((answer.reward, score.error), answer.forms[form])
    return [
        f"{name} fails on the response {response!r:.80} ({reason}): every response of this form loses its sample, and "
        "more than reward.max_failed_share of them stop the run; return a score for it"
        for (name, reason), response in failures.items()
    ]


def _few(uids: Sequence[str]) -> str:
    shown = ", ".join(uids[:3])
    return f"row {shown}" if len(uids) == 1 else f"{len(uids)} rows ({shown}{', ...' if len(uids) > 3 else ''})"
