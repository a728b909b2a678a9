"""The base of every configuration section."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A section of the run configuration: immutable, unknown keys refused, every field with a sentence and bounds.

    A default stands in the section's class and nowhere else; code that reads a field has no fallback of its own.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )
