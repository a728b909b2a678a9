"""Types of the flows' parameters: what Prefect's form shows and refuses."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

Override = Annotated[str, Field(pattern=r"^\s*[^=\s][^=]*=")]
"""A change of one key, `key.path=value`. A part of the path may be a name of the user's own, such as my-charts or
owner/name, so that only what the command line refuses too is refused here (rl_core.config.loading.apply_override)."""

Overrides = Sequence[Override]
