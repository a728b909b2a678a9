"""What the tests of the stages share with those of other rooms: dying at a chosen moment, a user's files imported here,
files of rows, and the working directory."""

from tests.flows.conftest import at_the_root
from tests.rl_core.conftest import killed_before_each_call, own_imports, write_jsonl

__all__ = ["at_the_root", "killed_before_each_call", "own_imports", "write_jsonl"]
