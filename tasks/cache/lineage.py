"""The lineage of a stage: the software that made it, and the lineages of the stages that it was made from."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import StageManifest, read_manifest
from tasks.cache.software import NOT_NOTED, Software, differences, in_words
from tasks.cache.stage_parts import Parts, stages_before, what_changed

UNKNOWN: Final = ""
"""The lineage of a stage whose software was not recorded."""

_HASH_LENGTH = 12
_PARTS_OF_STAGES = {"training-rows": "prepare"}
"""[part of a stage] -> the stage that makes it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedStage:
    """A stage as it would be made now.

    Attributes:
        name: Name of the stage.
        digest: Digest of what is asked for (tasks.cache.stages).
        parts: The parts that the digest covers (tasks.cache.stage_parts).
        software: The software that would make it (tasks.cache.software).
        made_from: [stage whose result it reads] -> the lineage of that stage.
    """

    name: str
    digest: str
    parts: Parts = field(default_factory=dict)
    software: Software = field(default_factory=dict)
    made_from: Mapping[str, str] = field(default_factory=dict)

    @property
    def lineage(self) -> str:
        """The lineage of the stage, once it is made."""
        return lineage_of(self.software, self.made_from)

    @property
    def key(self) -> str:
        """Key of the stage's intermediate results, which are not used by other software."""
        return f"{self.digest}-{_hash(self.software, self.made_from)}"

    def is_outdated(self, own: StageManifest) -> str | None:
        """Why a stage that this run has finished is no longer what is asked for, in words; None when it is valid. It is
        valid whatever software made it, as long as it was made from the present results of the stages before it."""
        if own.digest != self.digest:
            return what_changed(own.parts, self.parts)
        other = [name for name, lineage in self.made_from.items() if own.made_from.get(name, UNKNOWN) != lineage]
        return f"what comes before was made anew by other software: {', '.join(other)}" if other else None

    def why_not_taken(self, found: StageManifest) -> str | None:
        """Why a stage of this digest that another run has finished is not taken over, in words; None when it can be
        taken."""
        if not found.software:
            return NOT_NOTED
        changes = differences(found.software, self.software)
        if changes:
            return f"made by other software: {in_words(changes)}"
        names = sorted(self.made_from.keys() | found.made_from.keys())
        lineages = {name: (found.made_from.get(name, UNKNOWN), self.made_from.get(name, UNKNOWN)) for name in names}
        other = [name for name, (then, now) in lineages.items() if then != now or now == UNKNOWN]
        return f"what comes before was made by other software: {', '.join(other)}" if other else None


def lineage_of(software: Software, made_from: Mapping[str, str]) -> str:
    """A hash that is equal for stages that the same software made from stages of equal lineages. UNKNOWN where the
    software or one of these lineages was not recorded."""
    if not software or UNKNOWN in made_from.values():
        return UNKNOWN
    return _hash(software, made_from)


def lineages_before(run: RunDirectory, parts: Parts) -> dict[str, str]:
    """[stage] -> lineage of the stages in a run that a stage of these parts reads."""
    manifests = {name: _manifest_of(run, name) for name in stage_names_before(parts)}
    return {name: lineage_of(found.software, found.made_from) for name, found in manifests.items() if found is not None}


def stage_names_before(parts: Parts) -> list[str]:
    """The stages whose results a stage of these parts reads; `training` stands for its last epoch."""
    return sorted({_PARTS_OF_STAGES.get(name, name) for name in stages_before(parts)})


def _hash(software: Software, made_from: Mapping[str, str]) -> str:
    text = json.dumps([dict(software), dict(made_from)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]


def _manifest_of(run: RunDirectory, stage: str) -> StageManifest | None:
    if stage != "training":
        return read_manifest(run, stage)
    paths = run.stage_manifest("any").parent.glob("train-epoch-*.json")
    last = max(paths, key=lambda path: (len(path.name), path.name), default=None)
    return read_manifest(run, last.stem) if last else None
