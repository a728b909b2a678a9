"""The true answers of some rows as responses, and what a reward says to them."""

import importlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import jinja2
from jinja2.sandbox import SandboxedEnvironment

from rl_core.config.reward import RewardConfig
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.routing import Routing
from rl_core.rewards.sample import RewardSample
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
"""What responses look like that rewards in the field read; a user's reward is tried on all of them, because which one
it reads is known to its author alone."""

_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")


@dataclass(kw_only=True, slots=True)
class TrueAnswer:
    """A row, the responses that say its true answer, and the scores of those that were tried.

    Attributes:
        reward: Name of the functions that judge it.
        prompt: The row.
        forms: The responses.
        scores: By the place of the response in `forms`; empty for a row that was left out.
    """

    reward: str
    prompt: Prompt
    forms: Sequence[str]
    scores: dict[int, Score] = field(default_factory=dict)

    def best(self, accuracy_key: str) -> int:
        """The form that is called right; without one, one that has a score; else the first."""

        def rank(form: int) -> tuple[bool, bool]:
            score = self.scores[form]
            return is_right(score, accuracy_key), score.error is None

        return max(self.scores, key=rank)

    @property
    def is_judged(self) -> bool:
        """Whether any form has a score."""
        return any(score.error is None for score in self.scores.values())

    def is_called_right(self, accuracy_key: str) -> bool:
        """Whether any form is."""
        return any(is_right(score, accuracy_key) for score in self.scores.values())


def is_right(score: Score, accuracy_key: str) -> bool:
    """Whether a score calls its response right."""
    return score.error is None and score.components.get(accuracy_key, score.overall) > 0.0


def true_answers(prompts: Sequence[Prompt], routing: Routing, target_template: str | None) -> list[TrueAnswer]:
    """The rows with their responses, none of them scored.

    Raises:
        jinja2.TemplateError: the template uses a name that it does not get.
    """
    return [
        TrueAnswer(reward=_name_of(prompt, routing), prompt=prompt, forms=_forms(prompt, routing, target_template))
        for prompt in prompts
    ]


def try_answers(answers: Sequence[TrueAnswer], config: RewardConfig, *, accuracy_key: str) -> None:
    """Score them in a pool of one process, which ends before this returns.

    The first row of each reward is tried in all its forms, the others in the one that suited it best, and in all only
    where that is not called right. A reward that let time pass and judged nothing is not asked about its other rows.
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
    """Tokens, about: words, marks and the end of the sequence. The tokenizer need not be there yet, and a reward that
    divides by the length must not meet 0, which no sampled response has."""
    return len(_WORD_OR_MARK.findall(response)) + 1


def _forms(prompt: Prompt, routing: Routing, target_template: str | None) -> list[str]:
    if target_template is not None:
        template = SandboxedEnvironment(undefined=jinja2.StrictUndefined).from_string(target_template)
        return [template.render(answer=prompt.answer_text, question=prompt.question)]
    route = routing.route_of(prompt.data_source)
    source = None if route is None else routing.specs[route.terms[0].lane].source
    if isinstance(source, str):
        return [str(importlib.import_module(source).exemplar(prompt.answer_text))]
    return [form.replace(_ANSWER, prompt.answer_text) for form in USUAL_FORMS]


def _name_of(prompt: Prompt, routing: Routing) -> str:
    route = routing.route_of(prompt.data_source)
    return "reward" if route is None else f"reward {route.name!r}"
