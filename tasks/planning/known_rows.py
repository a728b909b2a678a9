"""What is known of the rows of a run before they are prepared."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rl_core.config.run import RunConfig
from rl_core.planning.batches import BatchPlan, batch_plan, divisibility_problems, row_problems
from rl_core.problem import PlanError, Problem
from rl_core.run_directory import RunDirectory
from rl_core.sources.mixture import joint_glance
from rl_core.sources.source import DataSource, Glance
from tasks.cache.manifests import read_manifest
from tasks.cache.reuse import other_runs


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownRows:
    """A number of training rows, an estimate where it is not exact. `origin` says where the number comes from, if
    training may have fewer rows; it is empty if it will have exactly this number."""

    count: int
    origin: str = ""
    is_exact: bool = True

    def plan(self, config: RunConfig) -> BatchPlan | None:
        """The batch arithmetic; None when the batch sizes do not fit, which `problems` reports."""
        try:
            return batch_plan(config, self.count)
        except PlanError:
            return None

    def problems(self, config: RunConfig) -> list[Problem]:
        """Problems with this number of rows: fatal where a batch is certainly larger, else a warning."""
        if not self.origin or divisibility_problems(config):
            return []
        found = row_problems(config, self.count)
        is_certain = self.is_exact and self.count < config.data.rollout_batch_size
        return found if is_certain else [replace(problem, fatal=False) for problem in found]


def known_rows(
    config: RunConfig, run: RunDirectory, digests: Mapping[str, str], glance: Glance | None = None
) -> KnownRows | None:
    """The number of training rows: from a finished preparation of this run or another one; else as the source knows it,
    as a glance at it shows it, or as it was published. None when it is not known."""
    prepared = _prepared_rows(run, digests["prepare"])
    if prepared is not None:
        return KnownRows(count=prepared)
    if config.data.train.known_rows is not None:
        return KnownRows(count=config.data.train.known_rows)
    if glance is not None and glance.rows is not None:
        return KnownRows(count=glance.rows, origin="as many as are there; unusable and overlong ones are left out")
    if config.published is not None:
        return KnownRows(count=config.published.train_rows, is_exact=False, origin="as many as the published run had")
    return None


def _prepared_rows(run: RunDirectory, digest: str) -> int | None:
    for place in [*([run] if run.root.is_dir() else []), *other_runs(run)]:
        manifest = read_manifest(place, "prepare")
        if manifest is not None and manifest.digest == digest:
            return int(manifest.result["splits"]["train"]["rows"])
    return None


def glance_at(config: RunConfig) -> dict[str, Glance]:
    """[key] -> glance of every source; the sources of a mixture have keys of their own."""
    return {key: _glance(source) for key, source in config.sources()}


def split_glance(split: DataSource, key: str, glances: Mapping[str, Glance]) -> Glance:
    """The glance of a split. Where the split cannot be read, nothing is known of it."""
    if not split.parts:
        return glances[key]
    parts = {name: glances[f"{key}.sources.{name}"] for name in split.parts}
    return joint_glance(parts, names_rows=split.names_its_rows)


def _glance(source: DataSource) -> Glance:
    try:
        return source.glance()
    except (ValueError, OSError) as error:
        return Glance(problem=str(error))
