"""Stages as a process would make them now, one after the other."""

from collections.abc import Mapping

from rl_core.config.run import RunConfig
from tasks.cache.manifests import WantedStage
from tasks.cache.named_files import NamedFiles
from tasks.cache.software import Software, made_from, software_of_stages
from tasks.cache.stages import kind_of, stage_digests, stage_parts, stages_before


def made_now(
    config: RunConfig, stage: str, *, software: Mapping[str, Software] | None = None, files: NamedFiles | None = None
) -> WantedStage:
    """A stage, and all before it, made by this software; by what is here when None."""
    files = files or NamedFiles(paths_from=config.paths_from)
    software = software_of_stages(config, files) if software is None else software
    digests = stage_digests(config, files)
    parts = stage_parts(config, digests, files)
    made: dict[str, WantedStage] = {}
    for name in digests:
        before = [one for one in stages_before(parts[name]) if one != "cold-start" or config.cold_start]
        made[name] = WantedStage(
            name=name,
            digest=digests[name],
            parts=parts[name],
            software={**software.get(kind_of(name), {}), **made_from({one: made[one].software for one in before})},
        )
    return made[stage]
