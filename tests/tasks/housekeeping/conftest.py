"""The migrated MLflow database of the tracking tests."""

from tests.rl_core.tracking.conftest import empty_database, new_database

__all__ = ["empty_database", "new_database"]
