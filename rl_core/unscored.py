"""Responses that get no score although nothing failed. Imports no library, because the scoring processes read it."""

from typing import Final

NOT_FOR_SAMPLE: Final = "the reward returned None: it is not for this response"
"""The `error` of a score that the reward did not give, which is no failure."""
