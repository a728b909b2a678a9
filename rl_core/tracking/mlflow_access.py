"""All access to MLflow: which store is used, how long it is waited for, and how an outage is reported."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, ErrorCode
from mlflow.store.db.db_types import DATABASE_ENGINES
from sqlalchemy import create_engine, inspect
from sqlalchemy.exc import SQLAlchemyError

from rl_core.redaction import redact
from rl_core.tracking.tracker import RefusedByTracker, TrackerUnavailable

Result = TypeVar("Result")

PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}
"""MLflow's own defaults (7 retries, 120 s) hold a run up for minutes. There are no retries, since missing steps are
sent later."""

QUIET = {"MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
"""MLflow would show progress bars of downloads among the progress bars of the run, and print the addresses of its
pages, which may contain the server's password."""

_SQLITE = "sqlite:///"
_SECONDS_FOR_TABLES = 120.0
"""Two processes that make the tables of one new file leave a database that none can open. So one waits for the other,
for so long."""
_REFUSED = ErrorCode.Name(INVALID_PARAMETER_VALUE)


class MlflowAccess:
    """An MLflow tracking store, which may be unreachable at any moment: a server, or `sqlite:///file.db`. A relative
    path is made absolute here, because tasks may run in another working directory."""

    def __init__(self, uri: str) -> None:
        for name, value in (PATIENCE | QUIET).items():
            os.environ.setdefault(name, value)
        self.uri = absolute_uri(uri)
        self._client: MlflowClient | None = None

    def call(self, action: Callable[[MlflowClient], Result]) -> Result:
        """Return `action(client)`. Raises RefusedByTracker for what MLflow refuses, and TrackerUnavailable for every
        other error of MLflow, its transport or its database."""
        try:
            if self._client is None:
                self._client = self._open()
            return action(self._client)
        except (MlflowException, SQLAlchemyError, OSError) as error:  # OSError: every error of requests is one
            kind = RefusedByTracker if getattr(error, "error_code", None) == _REFUSED else TrackerUnavailable
            raise kind(redact(f"MLflow at {self.uri}: {error}")) from error

    @property
    def is_server(self) -> bool:
        """Whether the store is a server and not a database."""
        return self.uri.startswith(("http://", "https://"))

    def artifact_location(self, experiment: str) -> str | None:
        """Where the artifacts of an experiment are stored: beside the database. A server decides itself."""
        if not self.uri.startswith(_SQLITE):
            return None
        return (self._database().parent / "mlruns" / experiment).as_uri()

    def _open(self) -> MlflowClient:
        if self.uri.startswith(_SQLITE):
            database = self._database()
            database.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{database}.lock", timeout=_SECONDS_FOR_TABLES):
                client = self._open_unlocked()
                client.search_experiments(max_results=1)  # makes the tables of a new database
            return client
        return self._open_unlocked()

    def _open_unlocked(self) -> MlflowClient:
        # MLflow retries a database that cannot be opened for 101 seconds, so this tries it once before.
        if re.match(rf"({'|'.join(DATABASE_ENGINES)})(\+\w+)?:", self.uri):
            engine = create_engine(self.uri)
            inspect(engine).get_table_names()
            engine.dispose()
        return MlflowClient(tracking_uri=self.uri)

    def _database(self) -> Path:
        return Path(self.uri.removeprefix(_SQLITE))


def make_tables(uri: str) -> None:
    """Make the tables of a database that is a new file, unless another process is about to, which is waited for: a
    server of MLflow, whose own start waits for nobody, then finds them. Raises OSError where that fails."""
    if uri.startswith(_SQLITE):
        try:
            MlflowAccess(uri).call(lambda _: None)
        except TrackerUnavailable as error:
            raise OSError(f"{error}") from error


def absolute_uri(uri: str) -> str:
    """Make the path of a `sqlite:///` URI absolute; any other URI is returned unchanged."""
    if not uri.startswith(_SQLITE):
        return uri
    return _SQLITE + str(Path(uri.removeprefix(_SQLITE)).absolute())
