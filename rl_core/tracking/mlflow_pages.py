"""Where a browser finds what MLflow shows of a store.

A run that is tracked in a database does not know on which port `sightline ui` or `sightline server` serves its pages.
So these note it, in `$XDG_CACHE_HOME/sightline/mlflow` (`~/.cache/sightline/mlflow`), whose files may be deleted at any
time.
"""

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from rl_core.files import atomic_write_text, cache_folder
from rl_core.redaction import redact_addresses

PAGES_VARIABLE: Final = "SIGHTLINE_MLFLOW_PAGES"
"""Variable with the address of the pages for a browser, where it is not the one by which runs reach the server."""

_LOCAL_PAGES: Final = "http://127.0.0.1:5000"
"""Where the pages of a database are served when no other port is asked for."""

_AS_TRAINING: Final = "workflowType=machine_learning"
"""Part of an address with which MLflow's pages show runs and curves, and not prompts and judges."""


SHARED_VIEW: Final = "sightline"
"""Name of the view, a tag of each experiment, in which a link opens its runs."""


def note_pages(store: str, address: str) -> None:
    """Note that the pages of a store, named by its absolute URI, are served at an address."""
    with suppress(OSError):  # a home folder that cannot be written costs a link
        _note_of(store).parent.mkdir(parents=True, exist_ok=True)
        atomic_write_text(_note_of(store), address)


def page_of_experiment(store: str, experiment_id: str) -> str:
    """The address of an experiment's runs, with the columns by which they are told apart: its tag
    `mlflow.sharedViewState.sightline` names them."""
    return f"{_experiment(store, experiment_id)}/runs?{_AS_TRAINING}&viewStateShareKey={SHARED_VIEW}"


def page_of_run(store: str, experiment_id: str, run_id: str) -> str:
    """The address of a run."""
    return f"{_experiment(store, experiment_id)}/runs/{run_id}?{_AS_TRAINING}"


def _experiment(store: str, experiment_id: str) -> str:
    return f"{_pages_of(store)}/#/experiments/{experiment_id}"


def _pages_of(store: str) -> str:
    """Address of the pages of a store, without the user name and password that its URI may contain."""
    if asked := os.environ.get(PAGES_VARIABLE):
        return asked.rstrip("/")
    parts = urlsplit(store)
    if parts.scheme in ("http", "https"):
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")
    try:
        return _note_of(store).read_text()
    except (OSError, UnicodeDecodeError):
        return _LOCAL_PAGES


def _note_of(store: str) -> Path:
    return cache_folder("mlflow") / sha256(redact_addresses(store).encode()).hexdigest()
