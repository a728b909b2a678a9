"""Trying the reward on the ground truth, before anything expensive starts.

See docs/architecture.md, "Bad input is named".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rl_core.config.reward import RewardConfig
from rl_core.rewards.registry import resolve_rewards
from rl_core.rewards.true_answers import TrueAnswer, true_answers, try_answers
from rl_core.types import Prompt, Score

_IN_EVERY_FORM = (
    ", alone and in every usual form (in \\boxed{}, in <answer></answer>, after `Answer:` and ####): check the answers"
    " and the reward; if it reads a different form, nothing is wrong"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroundTruthTrial:
    """How the reward scored the true answers: the answer of each prompt in a form that the reward calls right, if there
    is one, with its score; sentences about what would stop the run; and sentences about what looks wrong but may be
    intended."""

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
    """Score the true answers of a few prompts in a pool of one process, which ends before this returns. All prompts are
    tried, unless the reward needed all its time on its first row and still gave no score.

    Args:
        target_template: Jinja text (variables `answer`, `question`) that turns an answer into a response. If None, a
            built-in reward is tried on the form that it gives its full score, and a user's reward on all USUAL_FORMS.
        accuracy_key: The component that evaluation will read (`evaluation.accuracy_key`).
        filter_key: The component that groups are filtered by (`algorithm.online_filtering.filter_key`), if any.
    """
    try:
        answers = true_answers(prompts, resolve_rewards(config), target_template)
    except ValueError as error:
        return GroundTruthTrial(problems=f"{error}".splitlines())
    try_answers(answers, config, accuracy_key=accuracy_key)
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


def _problems(answers: Sequence[TrueAnswer], scores: Sequence[Score], read: Mapping[str, str]) -> list[str]:
    """Failed scores, and missing components. `read` maps the key of the config to the component that it names."""
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


def _wrong(answers: Sequence[TrueAnswer], accuracy_key: str) -> list[str]:
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


def _fragile(answers: Sequence[TrueAnswer]) -> list[str]:
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
