"""Secrets that every run of these tests has in its environment, and where they turn up."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq

PASSWORD = "password-of-this-test"
SECRETS = {"HF_TOKEN": "hf_of_this_test_alone", "WANDB_API_KEY": "wandb-of-this-test-alone"}


def leaks(folder: Path) -> list[tuple[Path, str]]:
    """(file, secret) of every secret that a file below the folder has in it."""
    # A database is read as a whole, and reading one whose server was killed removes the journal beside it.
    journals = (".db-wal", ".db-shm", ".db-journal")
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(journals)]
    texts = {path.relative_to(folder): _text_of(path) for path in files}
    return [
        (name, secret) for name, text in texts.items() for secret in (*SECRETS.values(), PASSWORD) if secret in text
    ]


def _text_of(path: Path) -> str:
    """All that a file says: Parquet and databases hold their texts compressed or in pages."""
    if path.suffix == ".parquet":
        return str(pq.read_table(path).to_pylist())
    if path.suffix == ".db":
        with closing(sqlite3.connect(path)) as database:
            return "\n".join(database.iterdump())
    return path.read_bytes().decode("latin-1")
