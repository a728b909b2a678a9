"""The code that computes each kind of stage. Other code decides no result, so a change of it makes no stage
outdated."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tasks.cache.source_closure import SOURCES, Source, closure


@dataclass(frozen=True, kw_only=True, slots=True)
class StageCode:
    """The code of one kind of stage.

    Attributes:
        entries: The modules that compute it; everything that they import, directly or indirectly, counts too.
        without: Modules and packages that are imported only for other kinds of stages; entries among them count.
    """

    entries: tuple[str, ...]
    without: tuple[str, ...] = ()


_SESSION = "rl_core.loop.session"
_SETTINGS = "rl_core.loop.machine_settings"
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
"""The modules of rl_core.training that change weights; the other modules load and read them."""

STAGE_CODE: Final[Mapping[str, StageCode]] = {
    "prepare": StageCode(entries=("tasks.preparation",), without=("rl_core.algorithms",)),
    "cold-start": StageCode(
        entries=(_SESSION, _SETTINGS, "rl_core.loop.cold_start"),
        without=("rl_core.algorithms", "rl_core.evaluation", "rl_core.loop", "rl_core.rewards", "rl_core.rollout"),
    ),
    "train": StageCode(entries=(_SESSION,)),
    "evaluate": StageCode(
        entries=(_SESSION, _SETTINGS, "rl_core.evaluation.folder"),
        without=("rl_core.algorithms", "rl_core.loop", *_UPDATES),
    ),
    "merge": StageCode(
        entries=(_SESSION, _SETTINGS, "rl_core.export.verification"),
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
"""[kind of stage] -> its code. A model card, an upload and a report describe their own run, so they are never taken
over."""

NO_RESULT: Final = (
    "rl_core.events",
    "rl_core.progress",
    "rl_core.redaction",
    "rl_core.run_lock",
    "rl_core.stop",
    "rl_core.timing",
    "rl_core.wording",
)
"""Modules that every stage uses and that decide no result: progress bars, locks, logs, wording."""


def code_of(kind: str, *, imported: Iterable[str] = (), sources: Path = SOURCES) -> Mapping[str, Source]:
    """[name] -> source of the modules that compute a kind of stage; empty for a kind that computes nothing.

    Args:
        kind: Kind of stage (tasks.cache.stages).
        imported: Dotted names that the configured functions import, and the names of built-in rewards.
        sources: The folder of the packages.
    """
    code = STAGE_CODE.get(kind)
    if code is None:
        return {}
    return closure(code.entries, imported=imported, without=(*code.without, *NO_RESULT), sources=sources)
