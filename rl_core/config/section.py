"""The base of every configuration section."""

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError

SECRET_ERROR = "secret"
"""pydantic's type of an error whose input must not be shown."""


class Section(BaseModel):
    """A section of the run configuration: immutable, unknown keys refused, every field with a sentence and bounds.

    A default stands in the section's class and nowhere else; code that reads a field has no fallback of its own.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )


def refused_secret(message: str) -> PydanticCustomError:
    """What a validator raises for a value that may be a secret: a config is written down in many places, so that
    secrets come from the environment alone. The error's report leaves the value out."""
    return PydanticCustomError(SECRET_ERROR, "{message}", {"message": message})
