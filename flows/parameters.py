"""Types of the flows' parameters: what Prefect's form shows and refuses."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

Override = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*=")]
"""A change of one key, `key.path=value`."""

Overrides = Sequence[Override]
