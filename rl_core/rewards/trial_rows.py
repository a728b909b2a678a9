"""The rows that a reward is tried on, with responses that a person would call right and wrong."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rl_core.answer_forms import short_answer
from rl_core.rewards.registry import BUILTIN
from rl_core.rewards.routing import Routing
from rl_core.templates import target_template
from rl_core.types import Prompt, Score
from rl_core.unscored import NOT_FOR_SAMPLE

_ANSWER = "ANSWER"
USUAL_FORMS = {
    "the true answer alone": _ANSWER,
    "in \\boxed{}": "<think>I think.</think>\n\\boxed{ANSWER}",
    "in <answer></answer>": "<think>I think.</think>\n<answer>ANSWER</answer>",
    "boxed in <answer></answer>": "<think>I think.</think>\n<answer>\\boxed{ANSWER}</answer>",
    "after Answer:": "I think.\nAnswer: ANSWER",
    "behind ####": "I think.\n#### ANSWER",
}
"""The usual forms of a response, by name. Only a reward's author knows which one it reads."""

_OWN_FORM = "as the reward reads it"
TARGET_FORM = "as cold_start.target_template"
OTHER = "another row's answer"
EMPTY = "an empty response"


@dataclass(kw_only=True, slots=True)
class TriedRow:
    """A row to try: the name of its reward; the module of a `builtin` one; whether it `judges` answers; [name of a
    form] -> a response that gives the true answer; the same with `another` row's answer, empty where all rows have the
    same; and [name of a form, or what is wrong] -> each response that was tried, and its score."""

    reward: str
    prompt: Prompt
    builtin: str | None
    judges: bool
    forms: Mapping[str, str]
    another: Mapping[str, str] = field(default_factory=dict)
    responses: dict[str, str] = field(default_factory=dict)
    scores: dict[str, Score] = field(default_factory=dict)

    @property
    def short(self) -> str:
        """What a person would call the answer."""
        return short_answer(self.prompt.answer_text)

    def best(self, accuracy_key: str) -> str:
        """The form with the highest score of those that are called right, else of those with a score, else the
        first."""

        def rank(form: str) -> tuple[bool, bool, float]:
            score = self.scores[form]
            return is_right(score, accuracy_key), score.error is None, score.overall if score.error is None else 0.0

        return max(self._tried(), key=rank)

    def wrong(self, accuracy_key: str) -> dict[str, str]:
        """[what is wrong] -> response; another row's answer has the best form."""
        other = {OTHER: self.another[self.best(accuracy_key)]} if self.another else {}
        return {**other, EMPTY: ""}

    @property
    def is_left_out(self) -> bool:
        """Whether the reward is not for this row, in all forms that were tried."""
        return all(self.scores[form].error == NOT_FOR_SAMPLE for form in self._tried())

    @property
    def is_judged(self) -> bool:
        """Whether the reward gave a score for one of its forms."""
        return any(self.scores[form].error is None for form in self._tried())

    def is_called_right(self, accuracy_key: str) -> bool:
        """Whether one of the forms that were tried is called right."""
        return any(is_right(self.scores[form], accuracy_key) for form in self._tried())

    def _tried(self) -> list[str]:
        return [form for form in self.forms if form in self.scores]


def is_right(score: Score, accuracy_key: str) -> bool:
    """Whether a response with this score is called right, at least in part."""
    return score.error is None and score.components.get(accuracy_key, score.overall) > 0.0


def rows_to_try(prompts: Sequence[Prompt], routing: Routing, template_text: str | None) -> list[TriedRow]:
    """The rows, none of them scored. Raises ValueError when the template is wrong or cannot render an answer."""
    rows = [_row(prompt, routing, template_text) for prompt in prompts]
    for row in rows:
        others = (one for one in rows if one.reward == row.reward and one.short.casefold() != row.short.casefold())
        if (other := next(others, None)) is not None:
            row.another = _writer(row.builtin, row.prompt, template_text)(other.prompt)
    return rows


def _row(prompt: Prompt, routing: Routing, template_text: str | None) -> TriedRow:
    reward, builtin, judges = judge_of(prompt, routing)
    forms = _writer(builtin, prompt, template_text)(prompt)
    return TriedRow(reward=reward, prompt=prompt, builtin=builtin, judges=judges, forms=forms)


def judge_of(prompt: Prompt, routing: Routing) -> tuple[str, str | None, bool]:
    """The name of a row's reward; the module of its first function, if that is a built-in one; and whether one of its
    functions may judge answers."""
    route = routing.route_of(prompt.data_source)
    if route is None:
        return "reward", None, False
    sources = [str(routing.specs[term.function_index].source) for term in route.terms]
    builtin = sources[0] if sources[0] in BUILTIN.values() else None
    return f"reward {route.name!r}", builtin, route.reader is not None or not set(sources) <= set(BUILTIN.values())


def _writer(builtin: str | None, asked: Prompt, template_text: str | None) -> Callable[[Prompt], dict[str, str]]:
    """The function that writes the answer of a row as responses to the question of `asked`."""

    def write(answered: Prompt) -> dict[str, str]:
        if template_text is not None:
            template = target_template(template_text)
            return {TARGET_FORM: template.render(answer=answered.answer_text, question=asked.question)}
        short = short_answer(answered.answer_text)
        own = {} if builtin is None else {_OWN_FORM: str(importlib.import_module(builtin).exemplar(short))}
        return {**own, **{name: form.replace(_ANSWER, short) for name, form in USUAL_FORMS.items()}}

    return write


def by_reward(rows: Sequence[TriedRow]) -> dict[str, list[TriedRow]]:
    """[name of a reward] -> its rows."""
    groups: dict[str, list[TriedRow]] = {}
    for row in rows:
        groups.setdefault(row.reward, []).append(row)
    return groups
