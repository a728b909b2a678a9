"""Types of the flows' parameters, which Prefect's form shows and checks."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

Override = Annotated[str, Field(pattern=r"^\s*[^=\s][^=]*=")]
"""A change of one key, `key.path=value`. Part of the path may be a name of the user's, such as my-charts or owner/name,
so the pattern refuses only what the command line refuses too (rl_core.config.loading.apply_override)."""

Overrides = Sequence[Override]

_SEEDS = r"\d+(-\d+)?(\s*,\s*\d+(-\d+)?)*"

Seeds = Annotated[str, Field(pattern=f"^{_SEEDS}$")]
"""Numbers and ranges, as flows.seed_group.parse_seeds reads them."""

OptionalSeeds = Annotated[str, Field(pattern=f"^({_SEEDS})?$")]
"""Such numbers and ranges, or nothing for the seed of the config."""
