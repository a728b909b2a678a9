"""What a trial of the reward found, in sentences."""

import re
from collections.abc import Iterator, Mapping, Sequence

from rl_core.answer_forms import doubt, short_answer
from rl_core.config.reward import RewardConfig
from rl_core.rewards.registry import BUILTIN, resolve_rewards
from rl_core.rewards.trial_rows import EMPTY, OTHER, TARGET_FORM, TriedRow, by_reward, judge_of
from rl_core.types import Prompt, Score
from rl_core.unscored import NOT_FOR_SAMPLE

_COMPARING = {BUILTIN[name] for name in ("math", "r1v", "dapo", "geoqa")}
"""Built-in rewards whose answers are right if they equal the row's; the others read a letter or a number in it."""

_WHOLE = {BUILTIN["math"], BUILTIN["r1v"]}
"""Those that, with mathruler, find no short answer inside the row's; the others read a boxed or a tagged one."""


def failures(rows: Sequence[TriedRow], scores: Sequence[Score], read: Mapping[str, str]) -> list[str]:
    """Failed scores, and missing components. `read`: [key of the config] -> the component that it names."""
    rows_of: dict[tuple[str, str], list[str]] = {}
    for row, score in zip(rows, scores, strict=True):
        for reason in _reasons(score, read):
            rows_of.setdefault((row.reward, reason), []).append(row.prompt.uid)
    return [f"{name} on the ground truth of {_few(uids)}: {why}" for (name, why), uids in rows_of.items()]


def _reasons(score: Score, read: Mapping[str, str]) -> Iterator[str]:
    if score.has_failed and not is_refusal(score.error):
        yield score.error or ""
    if score.error is not None:
        return
    known = ", ".join(sorted(score.components))
    for key, component in read.items():
        if component not in score.components and not score.skipped:
            yield f"its components ({known}) lack {component!r}: name one of them as {key}"


def called_wrong(rows: Sequence[TriedRow], accuracy_key: str) -> tuple[list[str], list[str]]:
    """Sentences about rewards that call no true answer right and cannot teach anything, which is certain of built-in
    ones; and about those that call some answers wrong, or may read a form that was not tried."""
    never: list[str] = []
    sometimes: list[str] = []
    for reward, those in by_reward(rows).items():
        mappings = [row.prompt for row in those if _fields(row.prompt, row.builtin)]
        if mappings:
            names = " or ".join(f"COLUMN.{name}" for name in _fields(mappings[0], those[0].builtin))
            uids = _few([prompt.uid for prompt in mappings])
            never.append(f"{reward} compares texts, and the answer of {uids} is a mapping: columns.answer_key: {names}")
        wrong = [
            row
            for row in those
            if row.is_judged
            and not row.is_called_right(accuracy_key)
            and not any(is_refusal(score.error) for score in row.scores.values())
        ]
        if not wrong:
            continue
        first = wrong[0]
        uids = _few([row.prompt.uid for row in wrong])
        what = f"{reward} calls the true answer wrong for {uids} (of {len(those)} tried)"
        if TARGET_FORM in first.forms:
            sometimes.append(f"{what}: check the form of the answers, the target template and the reward")
            continue
        response, truth = next(iter(first.forms.values())), first.prompt.answer_text
        what += f": no form of the true answer is right, such as {response!r:.80} for {truth!r:.120}"
        if first.builtin is None:
            sometimes.append(
                f"{what}; check the answers and the reward; if it reads a different form, nothing is wrong"
            )
        else:
            found = never if len(wrong) == len(those) and first.judges else sometimes
            found.append(f"{what}; let columns.answer_key and columns.answer_pattern read the short answer")
    return never, sometimes


def undecided(rows: Sequence[TriedRow], scores: Sequence[Score]) -> Iterator[str]:
    """Sentences about rewards that give a wrong response as much as a right one, or of which that cannot be told."""
    right = {id(row): score.overall for row, score in zip(rows, scores, strict=True) if score.error is None}
    for reward, those in by_reward(rows).items():
        if len(those) > 1 and those[0].judges and not any(row.another for row in those):
            yield (
                f"all {len(those)} rows that {reward} was tried on have the answer {those[0].short!r:.60}: whether it "
                "tells right from wrong cannot be told, and a model can learn to answer without looking"
            )
        for name in (OTHER, EMPTY):
            tried = [row for row in those if name in row.scores and row.scores[name].error is None]
            as_high = [row for row in tried if row.scores[name].overall >= right[id(row)]]
            if not as_high:
                continue
            what = "a wrong answer" if name == OTHER else name
            yield (
                f"{reward}: {what} scores as high as a right one for {_few([row.prompt.uid for row in as_high])} (of "
                f"{len(tried)} tried), such as {as_high[0].responses[name]!r:.80} for {as_high[0].short!r:.60}; if "
                "another component judges the answer, or none shall, nothing is wrong"
            )


def doubtful_answers(config: RewardConfig, prompts: Sequence[Prompt], *, is_tried: bool = False) -> list[str]:
    """Sentences about answers that hardly any response gives word for word, where a built-in reward compares them. If
    the reward `is_tried` too, its scores say whether it finds a short answer inside a longer text. Runs no code of the
    user. Raises ValueError where a reward cannot be found."""
    routing = resolve_rewards(config)
    scores_decide = is_tried or config.grader not in (None, "mathruler")
    compared: dict[str, int] = {}
    found: dict[str, list[str]] = {}
    for prompt in prompts:
        reward, builtin, _ = judge_of(prompt, routing)
        if builtin not in _COMPARING or (is_tried and _fields(prompt, builtin)):
            continue
        compared[reward] = compared.get(reward, 0) + 1
        why = _why_doubtful(prompt.answer_text, may_hold_short=scores_decide or builtin not in _WHOLE)
        if why is not None:
            found.setdefault(reward, []).append(f"the answer of row {prompt.uid} {why} ({prompt.answer_text!r:.100})")
    return [
        f"{reward} compares whole answers, and {len(doubts)} of {compared[reward]} can hardly be given word for word: "
        f"{doubts[0]}; read a short answer with columns.answer_key or columns.answer_pattern, or take a reward that "
        "understands it"
        for reward, doubts in found.items()
    ]


def _fields(prompt: Prompt, builtin: str | None) -> list[str]:
    """The fields of an answer that is a mapping, and that a built-in reward compares with a text."""
    return list(prompt.answer) if builtin in _COMPARING and isinstance(prompt.answer, dict) else []


def _why_doubtful(text: str, *, may_hold_short: bool) -> str | None:
    short = short_answer(text)
    if short != text and text.strip(" $") != f"\\boxed{{{short}}}":
        return None if may_hold_short else f"holds the short answer {short!r:.60}"
    return doubt(text)


def never_given(rows: Sequence[TriedRow]) -> list[str]:
    """A sentence if no reward is for any of the rows."""
    if not rows or not all(row.is_left_out for row in rows):
        return []
    names = " and ".join(by_reward(rows))
    return [
        f"{names} returned None for every response to the {len(rows)} rows that were tried: None means that a reward "
        "is not for a response, which is left out; see whether a `return` is missing"
    ]


def refused(rows: Sequence[TriedRow]) -> Iterator[str]:
    """Sentences about rewards that a judge refused for the moment: what would be tried later may be right."""
    for reward, those in by_reward(rows).items():
        scores = [score for row in those for score in row.scores.values()]
        refusals = [score.error for score in scores if is_refusal(score.error)]
        if refusals:
            yield (
                f"{reward} could not be tried: {len(refusals)} of {len(scores)} calls were refused by a server that is "
                f"busy ({refusals[0]}); in the run such a response has no score, and more than reward.max_failed_share "
                "of them stop it: let the function ask again, or ask later"
            )


_BUSY = re.compile(
    r"(?<!['\"\d.])\b429\b(?!['\"\d]|\.\d)|(?:http|status|code)\D{0,20}(?:429|50[234]|529)\b"
    r"|too many requests|rate.?limit|service unavailable|bad gateway|gateway time-?out|overloaded",
    re.IGNORECASE,
)


def is_refusal(error: str | None) -> bool:
    """Whether a failure says that a server is busy or away for a moment (HTTP 429, 502, 503, 504), as far as its text
    shows it."""
    return error is not None and _BUSY.search(error) is not None


def not_given(rows: Sequence[TriedRow]) -> Iterator[str]:
    """Sentences about rewards that returned None for one response to a row and not for another."""
    for reward, those in by_reward(rows).items():
        found = [
            (row, name)
            for row in those
            if not row.is_left_out
            for name, score in row.scores.items()
            if score.error == NOT_FOR_SAMPLE
        ]
        if found:
            row, name = found[0]
            yield (
                f"{reward} returned None for the response {row.responses[name]!r:.80} to row {row.prompt.uid}, and not "
                "for another one: such responses are left out, so that a wrong one may cost nothing; return a number "
                "for it, or None for all responses to a row"
            )


def fragile(rows: Sequence[TriedRow]) -> list[str]:
    """Rewards that score one form of an answer and fail on another response."""
    reasons: dict[tuple[str, str], str] = {}
    for row in rows:
        for name, score in row.scores.items():
            if row.is_judged and score.has_failed and not is_refusal(score.error):
                reasons.setdefault((row.reward, score.error or ""), row.responses[name])
    return [
        f"{name} fails on the response {response!r:.80} ({reason}): every response of this form loses its sample, and "
        "more than reward.max_failed_share of them stop the run; return a score for it"
        for (name, reason), response in reasons.items()
    ]


def _few(uids: Sequence[str]) -> str:
    shown = ", ".join(uids[:3])
    return f"row {shown}" if len(uids) == 1 else f"{len(uids)} rows ({shown}{', ...' if len(uids) > 3 else ''})"
