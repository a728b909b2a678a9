"""Whether a run's merged model has an alias in MLflow's registry. This is the only fact about a run that is not in its
folder. Where it cannot be found out, the run stays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rl_core.redaction import redact
from rl_core.run_directory import RunDirectory
from rl_core.tracking.mlflow_address import mlflow_address
from tasks.cache.manifests import read_manifest
from tasks.housekeeping.overview import RunOverview

_SQLITE = "sqlite:///"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Registered:
    """The registry's answer for an experiment. `aliases`: [run name] -> aliases of its versions, mostly empty.
    `trouble`: why the registry could not be asked."""

    aliases: Mapping[str, list[str]]
    trouble: str | None = None


@dataclass
class Champions:
    """Looks up aliases in the registries of runs. A registry is asked once for each experiment."""

    _known: dict[tuple[str, str], _Registered] = field(default_factory=dict)

    def reason_to_keep(self, run: RunOverview) -> str | None:
        """Why the run must stay, a sentence; None for a run whose model certainly has no alias."""
        if not _has_merged_model(run.run):
            return None
        if run.config is None:
            return "it has a merged model, which may be a champion, and its config cannot be read"
        address = mlflow_address(run.config.tracking)
        if address is None:
            return None
        found = self._asked(address, run.config.experiment)
        if found.trouble:
            return f"it cannot be found out whether its model is a champion: {found.trouble}"
        if run.run.name not in found.aliases:
            return f"its model is not in the registry of {redact(address)}, where a champion would be"
        aliases = found.aliases[run.run.name]
        return f"its model has the alias {', '.join(aliases)}" if aliases else None

    def _asked(self, address: str, experiment: str) -> _Registered:
        key = (address, experiment)
        if key not in self._known:
            self._known[key] = _ask(address, experiment)
        return self._known[key]


def _has_merged_model(run: RunDirectory) -> bool:
    return run.merged_model.is_dir() or read_manifest(run, "merge") is not None


def _ask(address: str, experiment: str) -> _Registered:
    # MLflow would create a missing database, which would have no champion.
    if address.startswith(_SQLITE) and not Path(address.removeprefix(_SQLITE)).is_file():
        return _Registered(aliases={}, trouble=f"there is no database {redact(address)}")
    # Imported here: MLflow takes two seconds to import, and most runs that are removed have no merged model.
    from rl_core.tracking.mlflow_access import MlflowAccess
    from rl_core.tracking.mlflow_registry import ModelRegistry
    from rl_core.tracking.tracker import TrackerUnavailable

    try:
        return _Registered(aliases=ModelRegistry(MlflowAccess(address), experiment).aliases_of_runs())
    except TrackerUnavailable as outage:
        return _Registered(aliases={}, trouble=f"{outage}")
