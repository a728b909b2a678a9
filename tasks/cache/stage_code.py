"""Which code computes each kind of stage: what is not among it decides no result, and may change without making one
stale."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tasks.cache.source_closure import SOURCES, Source, closure


@dataclass(frozen=True, kw_only=True, slots=True)
class StageCode:
    """The code of one kind of stage.

    Attributes:
        entries: The modules that compute it: all that they import, directly or not, counts.
        without: What they import for other kinds of stages; an entry counts all the same.
    """

    entries: tuple[str, ...]
    without: tuple[str, ...] = ()


_SESSION = "rl_core.loop.session"
_UPDATES = tuple(
    f"rl_core.training.{name}"
    for name in (
        "agreement",
        "critic",
        "objective",
        "optimizer",
        "policy_update",
        "schedule",
        "split_adamw",
        "supervised",
        "value_update",
    )
)
"""The half of that room that changes weights; the rest of it loads and reads them."""

STAGE_CODE: Final[Mapping[str, StageCode]] = {
    "prepare": StageCode(entries=("tasks.preparation",), without=("rl_core.algorithms",)),
    "cold-start": StageCode(
        entries=(_SESSION, "rl_core.loop.cold_start"),
        without=("rl_core.algorithms", "rl_core.evaluation", "rl_core.loop", "rl_core.rewards", "rl_core.rollout"),
    ),
    "train": StageCode(entries=(_SESSION,)),
    "evaluate": StageCode(
        entries=(_SESSION, "rl_core.evaluation.folder"),
        without=("rl_core.algorithms", "rl_core.loop", *_UPDATES),
    ),
    "merge": StageCode(
        entries=(_SESSION, "rl_core.export.verification"),
        without=(
            "rl_core.algorithms",
            "rl_core.evaluation",
            "rl_core.loop",
            "rl_core.rewards",
            "rl_core.rollout",
            *_UPDATES,
        ),
    ),
}
"""By kind of stage. A model card, an upload and a report speak of their own run and are taken over by none."""

NO_RESULT: Final = (
    "rl_core.events",
    "rl_core.progress",
    "rl_core.redaction",
    "rl_core.run_lock",
    "rl_core.stop",
    "rl_core.timing",
    "rl_core.wording",
)
"""What surrounds the computing of every stage: bars, locks, logs, words."""


def code_of(kind: str, *, imported: Iterable[str] = (), sources: Path = SOURCES) -> Mapping[str, Source]:
    """The modules that compute a kind of stage, by name; none for one that computes nothing.

    Args:
        kind: Kind of stage (tasks.cache.stages).
        imported: Dotted names that the configured functions import, those of built-in rewards among them.
        sources: The folder of the packages.
    """
    code = STAGE_CODE.get(kind)
    if code is None:
        return {}
    return closure(code.entries, imported=imported, without=(*code.without, *NO_RESULT), sources=sources)
