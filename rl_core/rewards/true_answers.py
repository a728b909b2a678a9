"""Writes the true answers of some rows as responses, and scores them."""

import importlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rl_core.config.reward import RewardConfig
from rl_core.rewards.pool import RewardPool
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


@dataclass(kw_only=True, slots=True)
class TrueAnswer:
    """A row, responses that give its true answer in several forms, and [index of a form] -> its score, of the forms
    that were tried: none for a row that was left out. `reward` names the functions that score the row."""

    reward: str
    prompt: Prompt
    forms: Sequence[str]
    scores: dict[int, Score] = field(default_factory=dict)

    def best(self, accuracy_key: str) -> int:
        """The index of the first form that is called right; if there is none, of the first form that has a score; else
        of the first form."""

        def rank(form: int) -> tuple[bool, bool]:
            score = self.scores[form]
            return is_right(score, accuracy_key), score.error is None

        return max(self.scores, key=rank)

    @property
    def is_judged(self) -> bool:
        """Whether any form has a score."""
        return any(score.error is None for score in self.scores.values())

    def is_called_right(self, accuracy_key: str) -> bool:
        """Whether any form is called right."""
        return any(is_right(score, accuracy_key) for score in self.scores.values())


def is_right(score: Score, accuracy_key: str) -> bool:
    """Whether a score calls its response right."""
    return score.error is None and score.components.get(accuracy_key, score.overall) > 0.0


def true_answers(prompts: Sequence[Prompt], routing: Routing, template_text: str | None) -> list[TrueAnswer]:
    """The rows with their responses, none of them scored. Raises ValueError when the template is not valid, or an
    answer cannot be rendered with it."""
    template = None if template_text is None else target_template(template_text)
    return [
        TrueAnswer(reward=_name_of(prompt, routing), prompt=prompt, forms=_forms(prompt, routing, template))
        for prompt in prompts
    ]


def try_answers(answers: Sequence[TrueAnswer], config: RewardConfig, *, accuracy_key: str) -> None:
    """Score the answers in a pool of one process, which ends before this returns.

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


def _score(pool: RewardPool, pairs: Sequence[tuple[TrueAnswer, int]]) -> None:
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
    """An estimate of the number of tokens: words, punctuation marks and the end of the sequence. There may be no
    tokenizer yet, and the length must not be 0, by which a reward may divide."""
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
