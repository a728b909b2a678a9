"""Reasons to keep a run that a rule chose for removal: something else would be lost with it.

Only whether its merged model has an alias in MLflow's registry is not in a run's folder. Where that cannot be found
out, the run stays.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rl_core.redaction import redact
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import read_manifest
from tasks.housekeeping.overview import RunOverview

_SQLITE = "sqlite:///"

Aliases = Mapping[str, list[str]] | str
"""[run name] -> aliases of its model in a registry, mostly empty; or why the registry could not be asked."""


def reason_to_keep(
    run: RunOverview,
    runs: Sequence[RunOverview],
    *,
    in_use: Mapping[str, str],
    aliases: Callable[[str, str], Aliases],
) -> str | None:
    """Why a chosen run must be kept, a sentence; None when it may be removed. `runs` are all runs, not only the chosen
    ones; `in_use` says for the name of a run why it is still needed; `aliases` asks the registry at an address about an
    experiment."""
    if run.run.name in in_use:
        return in_use[run.run.name]
    if _is_good_baseline(run.run):
        return "it is a good run of its baseline, which later ones are compared with"
    others = [other.run for other in runs if other.run.root != run.run.root]
    return _named_by(run.run, others) or _as_champion(run, aliases)


def ask_registry(address: str, experiment: str) -> Aliases:
    """The aliases of an experiment's runs."""
    # MLflow would create a missing database, which would have no champion.
    if address.startswith(_SQLITE) and not Path(address.removeprefix(_SQLITE)).is_file():
        return f"there is no database {redact(address)}"
    # Imported here: MLflow takes two seconds to import, and most runs that are removed have no merged model.
    from rl_core.tracking.mlflow_access import MlflowAccess
    from rl_core.tracking.mlflow_registry import ModelRegistry
    from rl_core.tracking.tracker import TrackerUnavailable

    try:
        return ModelRegistry(MlflowAccess(address), experiment).aliases_of_runs()
    except TrackerUnavailable as outage:
        return f"{outage}"


def _as_champion(run: RunOverview, aliases: Callable[[str, str], Aliases]) -> str | None:
    if not (run.run.merged_model.is_dir() or read_manifest(run.run, "merge") is not None):
        return None
    if run.config is None:
        return "it has a merged model, which may be a champion, and its config cannot be read"
    address = run.config.tracking.mlflow_address
    if address is None:
        return None
    found = aliases(address, run.config.experiment)
    if isinstance(found, str):
        return f"it cannot be found out whether its model is a champion: {found}"
    if run.run.name not in found:
        return f"its model is not in the registry of {redact(address)}, where a champion would be"
    own = found[run.run.name]
    return f"its model has the alias {', '.join(own)}" if own else None


def _is_good_baseline(run: RunDirectory) -> bool:
    """Whether it is a good run of its baseline, or may be one because its record cannot be read."""
    try:
        record = json.loads(run.reproduction.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
    return not isinstance(record, dict) or record.get("status") == "good"


def _named_by(run: RunDirectory, others: Sequence[RunDirectory]) -> str | None:
    """That another run's config names this one. What another run has taken over lies in its own folder."""
    named = re.compile(rf"(?<![\w.-]){re.escape(run.name)}(?![\w-])")
    found = (other for other in others if named.search(_text(other.config)))
    return next((f"the config of {other.name} names it" for other in found), None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # a config that cannot be read cannot use another run
