"""What the tests of the stages share with those of other rooms: the migrated MLflow database, dying at a chosen moment,
a user's files imported here, files of rows, and the working directory."""

from tests.flows.conftest import at_the_root
from tests.rl_core.conftest import killed_before_each_call, own_imports, write_jsonl
from tests.rl_core.tracking.conftest import empty_database, new_database

__all__ = ["at_the_root", "empty_database", "killed_before_each_call", "new_database", "own_imports", "write_jsonl"]
