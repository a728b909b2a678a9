"""OLMo 2 (arXiv:2501.00656): norms after attention and feed-forward, and of all queries and keys."""

from typing import Final

from rl_core.families.family import Family

FAMILY: Final = Family(name="olmo2", model_type="olmo2")
