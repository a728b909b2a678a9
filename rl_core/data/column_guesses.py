"""Guesses which columns of a table hold question, answer, images and videos."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rl_core.answers import read_answer
from rl_core.data.answer_guesses import guess_answers
from rl_core.sources.columns import Columns, field_of, name_columns, nearest_columns
from rl_core.sources.conversation import IMAGE_PLACE, VIDEO_PLACE, RowConversation, has_place, read_conversation
from rl_core.sources.media import media_items, path_named
from rl_core.sources.options import ColumnsKey, columns_named

_QUESTION_NAMES = (
    *("problem", "question", "prompt", "query", "instruction", "input"),
    *("messages", "conversations", "conversation", "turns", "text"),
)
VIDEO_NAMES = ("videos", "video", "video_path", "video_paths", "clip")
_VIDEO_ENDINGS = (".mp4", ".avi", ".mkv", ".mov", ".webm", ".m4v")
ANSWER_NAMES = (
    "reward_model.ground_truth",  # verl
    *("answer", "solution", "label", "ground_truth", "target", "final_answer", "gold", "gt", "answers"),
    *("correct_answer", "answerkey", "answer_key", "answer_index", "answer_idx", "correct_option", "correct"),
    *("output", "response", "completion"),
)

Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedColumns:
    """Columns that a person named, the pattern of answers, and the names of classes; what is None is guessed, and an
    empty pattern, options or image column is none."""

    prompt_key: str | None = None
    answer_key: str | None = None
    image_key: ColumnsKey | None = None
    video_key: str | None = None
    options_key: str | None = None
    answer_pattern: str | None = None
    class_names: tuple[str, ...] | None = None

    def given(self) -> dict[str, tuple[str, ...]]:
        """What was named, by key."""
        return {key: columns_named(name) for key, name in asdict(self).items() if name is not None}


def guess_columns(
    place: str, names: Sequence[str], sample: Sequence[Values], named: NamedColumns
) -> tuple[Columns, list[str]]:
    """The columns of the table `place`, guessed from their `names` and a `sample` of rows, and sentences about guesses
    among several possibilities. The image column is the `named` one. Raises ValueError where a named column does not
    exist, or no column looks like the question or the answer."""
    fields = [*names, *_fields(names, sample)]
    _check_named(place, fields, named)
    guesses = _Guesses(names=fields, sample=sample)
    question = named.prompt_key or guesses.find("prompt_key", _QUESTION_NAMES, _is_question)
    asked = [(row, one) for row in sample if question and (one := _conversation(row.get(question))) is not None]
    answer = named.answer_key or _guess_answer(guesses, question, [one for _, one in asked])
    missing = {"prompt-key": "question"} if question is None else {}
    missing |= {"answer-key": "answer"} if answer is None else {}
    if question is None or answer is None:
        options = " ".join(f"--{option} COLUMN" for option in missing)
        raise ValueError(
            f"{place}: no column looks like the {' or the '.join(missing.values())}; its columns are "
            f"{name_columns(names)}; name it to `sightline init`: {options}{guesses.why_not(question, answer)}"
        )
    video = named.video_key or guesses.find("video_key", VIDEO_NAMES, _is_video)
    images_first = _puts_media_first(guesses, asked, image=named.image_key, video=video)
    columns = Columns(
        prompt_key=question,
        image_key=named.image_key,
        video_key=video,
        answer_key=answer,
        images_first=images_first,
    )
    columns, doubts = guess_answers(
        columns,
        names,
        sample,
        pattern=named.answer_pattern,
        options_key=named.options_key,
        class_names=named.class_names,
    )
    return columns, guesses.doubts + doubts


@dataclass(kw_only=True)
class _Guesses:
    """Chooses among columns by their names and values, and collects the doubts about the choice."""

    names: Sequence[str]
    sample: Sequence[Values]

    def __post_init__(self) -> None:
        self.doubts: list[str] = []

    def find(self, key: str, known: Sequence[str], fits: Callable[[Any], bool]) -> str | None:
        """The column with a usual name whose values fit. Further ones are noted as a doubt."""
        usual = sorted((name for name in self.names if name.lower() in known), key=lambda one: known.index(one.lower()))
        found = [name for name in usual if any(fits(_value(values, name)) for values in self.sample)]
        if len(found) > 1:
            self.doubts.append(f"{key}: {found[0]!r} was chosen, {' and '.join(map(repr, found[1:]))} would fit too")
        return found[0] if found else None

    def why_not(self, question: str | None, answer: str | None) -> str:
        """Why the first row does not fit a column with a usual name; empty where there is no such column."""
        tried = [*(_QUESTION_NAMES if question is None else ()), *(ANSWER_NAMES if answer is None else ())]
        for name in self.names:
            if name.lower() in tried and self.sample:
                reader = read_conversation if name.lower() in _QUESTION_NAMES else read_answer
                try:
                    reader(self.sample[0].get(name))
                except ValueError as error:
                    return f" (of {name!r} the first row says: {error})"
        return ""


def _fields(names: Sequence[str], sample: Sequence[Values]) -> list[str]:
    """The fields of mappings, and the first items of lists in the columns, as an answer may name them."""
    inside: dict[str, None] = {}
    for name in names:
        for value in (row.get(name) for row in sample):
            if isinstance(value, dict):
                inside.update(dict.fromkeys(f"{name}.{field}" for field in value))
            elif isinstance(value, list) and value and not isinstance(value[0], dict):
                inside[f"{name}.0"] = None
    return list(inside)


def _value(values: Values, name: str) -> Any:
    try:
        return field_of(values, name)
    except ValueError:
        return None


def _check_named(place: str, names: Sequence[str], named: NamedColumns) -> None:
    problems = [
        f"{place} has no column {name!r} (--{key.replace('_', '-')}){nearest_columns(name, names)}"
        for key, given in named.given().items()
        for name in given
        if name and key not in ("answer_pattern", "class_names") and name not in names
    ]
    if problems:
        raise ValueError("\n".join(problems))


def _guess_answer(guesses: _Guesses, question: str | None, asked: Sequence[RowConversation]) -> str | None:
    """The column of the answer: that of the question where conversations end with the assistant's turn."""
    if any(conversation.answer is not None for conversation in asked):
        guesses.doubts.append(f"answer_key: the answer is the last turn of {question!r}, the assistant's")
        return question
    return guesses.find("answer_key", ANSWER_NAMES, _is_answer)


def _puts_media_first(
    guesses: _Guesses, asked: Sequence[tuple[Values, RowConversation]], *, image: ColumnsKey | None, video: str | None
) -> bool:
    """Whether images and videos have no place in some questions."""
    first = False
    for kind, columns, place, in_turns in (
        ("image", columns_named(image), IMAGE_PLACE, any(one.images for _, one in asked)),
        ("video", columns_named(video), VIDEO_PLACE, any(one.videos for _, one in asked)),
    ):
        marked = [_has_place(one, place) for _, one in asked]
        shows = [any(media_items(values.get(column)) for column in columns) for values, _ in asked]
        if any(marked) and not columns and not in_turns:
            guesses.doubts.append(
                f"questions have {place}, and no column looks like {kind}s: name it with --{kind}-key"
            )
        if unplaced := sum(shown and not has for shown, has in zip(shows, marked, strict=True)):
            first = True
            which = f"{unplaced} question(s)" if any(marked) else "no question"
            has = "have no" if any(marked) else "has"
            guesses.doubts.append(
                f"{which} of the rows looked at {has} {place}: {kind}s are put before it (images_first)"
            )
    return first


def _has_place(asked: RowConversation, place: str) -> bool:
    return any(has_place(text, place) for text in (*(turn.content for turn in asked.history), asked.question))


def _conversation(value: Any) -> RowConversation | None:
    """A value read as a conversation, with or without an answer at its end."""
    for is_answered in (False, True):
        try:
            return read_conversation(value, is_answered=is_answered)
        except ValueError:
            continue
    return None


def _is_question(value: Any) -> bool:
    asked = _conversation(value)
    return asked is not None and bool(asked.question.strip())


def _is_answer(value: Any) -> bool:
    try:
        read_answer(value)
    except ValueError:
        return False
    return True


def _is_video(value: Any) -> bool:
    """Whether a value holds a path that ends like a video's. Encoded bytes cannot be recognised."""
    return any((path_named(item) or "").lower().endswith(_VIDEO_ENDINGS) for item in media_items(value))
