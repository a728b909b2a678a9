"""Trained models in MLflow's registry: one version for each run, and the alias `champion` on one of them.

The weights stay in the run's folder. With a database, the source of a version is the URI of the folder. A server
refuses local paths outside of its own artifacts (mlflow/server/handlers.py, _validate_source_run), so there the source
is the artifact folder `merged`, in which `location.json` has the path and the hashes of the weights.
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion

from rl_core.tracking.mlflow_access import MlflowAccess
from rl_core.tracking.mlflow_runs import MlflowRun
from rl_core.tracking.tracker import Table

CHAMPION = "champion"
LOCATION = "merged/location.json"
_PAGE = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class RegisteredVersion:
    """A version of a registered model: its number and its tags."""

    version: str
    tags: Mapping[str, str]


class ModelRegistry:
    """The versions of one registered model. Every method raises TrackerUnavailable when MLflow does not answer."""

    def __init__(self, access: MlflowAccess, name: str) -> None:
        self._access = access
        self.name = name

    def find(self, tags: Mapping[str, str]) -> RegisteredVersion | None:
        """The newest version that has all these tags."""
        matching = [version for version in self._access.call(self._versions) if tags.items() <= version.tags.items()]
        newest = max(matching, key=lambda version: int(version.version), default=None)
        return None if newest is None else RegisteredVersion(version=str(newest.version), tags=dict(newest.tags))

    def register(
        self,
        run: MlflowRun,
        folder: Path,
        *,
        files: Mapping[str, str],
        tags: Mapping[str, str],
        description: str,
    ) -> RegisteredVersion:
        """Register a version of the model that came from `run`. `files`: [name] -> SHA-256 of the files in the folder
        of its weights; `description` is Markdown."""
        run_id = run.run_id
        source = folder.absolute().as_uri()
        if self._access.is_server:
            run.log_text(LOCATION, json.dumps({"folder": source, "sha256": dict(files)}, indent=2))
            source = f"runs:/{run_id}/{LOCATION.partition('/')[0]}"

        def register(client: MlflowClient) -> RegisteredVersion:
            if not client.search_registered_models(f"name = '{self.name}'"):
                client.create_registered_model(self.name)
            made = client.create_model_version(
                self.name, source, run_id=run_id, tags=dict(tags), description=description
            )
            return RegisteredVersion(version=str(made.version), tags=dict(tags))

        return self._access.call(register)

    def tag(self, version: RegisteredVersion, tags: Mapping[str, str]) -> None:
        """Add tags to a version."""

        def tag(client: MlflowClient) -> None:
            for name, value in tags.items():
                client.set_model_version_tag(self.name, version.version, name, value)

        self._access.call(tag)

    def champion(self) -> RegisteredVersion | None:
        """The version that has the alias `champion`."""

        def find(client: MlflowClient) -> RegisteredVersion | None:
            if not client.search_registered_models(f"name = '{self.name}'"):
                return None
            if CHAMPION not in client.get_registered_model(self.name).aliases:
                return None
            found = client.get_model_version_by_alias(self.name, CHAMPION)
            return RegisteredVersion(version=str(found.version), tags=dict(found.tags))

        return self._access.call(find)

    def aliases_of_runs(self) -> dict[str, list[str]]:
        """[name of a run that has a version] -> sorted aliases of its versions; mostly empty."""

        def read(client: MlflowClient) -> dict[str, list[str]]:
            if not client.search_registered_models(f"name = '{self.name}'"):
                return {}
            found: dict[str, list[str]] = {}
            of_version: dict[str, list[str]] = {}
            for alias, number in client.get_registered_model(self.name).aliases.items():
                of_version.setdefault(str(number), []).append(alias)
            for version in self._versions(client):
                aliases = found.setdefault(version.tags.get("sightline.run", ""), [])
                aliases.extend(of_version.get(str(version.version), []))
            return {run: sorted(aliases) for run, aliases in found.items()}

        return self._access.call(read)

    def _versions(self, client: MlflowClient) -> list[ModelVersion]:
        found: list[ModelVersion] = []
        token: str | None = None
        while True:
            page = client.search_model_versions(f"name = '{self.name}'", max_results=_PAGE, page_token=token)
            found += page
            if not (token := page.token):
                return found

    def set_champion(self, version: RegisteredVersion) -> None:
        """Move the alias `champion` to a version."""
        self._access.call(lambda client: client.set_registered_model_alias(self.name, CHAMPION, version.version))

    def table(self, run_id: str, file: str) -> Table | None:
        """The table that `MlflowRun.log_table` wrote as `file` in a run."""

        def read(client: MlflowClient) -> Table | None:
            if file not in {artifact.path for artifact in client.list_artifacts(run_id)}:
                return None
            with tempfile.TemporaryDirectory() as folder:
                text = Path(client.download_artifacts(run_id, file, folder)).read_text(encoding="utf-8")
            table = json.loads(text)
            return {name: [row[place] for row in table["data"]] for place, name in enumerate(table["columns"])}

        return self._access.call(read)
