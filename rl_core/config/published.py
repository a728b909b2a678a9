"""A published result that a run is to reproduce: part of a baseline's config, and of nothing that the run computes."""

from pydantic import Field

from rl_core.section import Section


class PublishedSpeed(Section):
    """How fast the reference is, for a forecast of the hours."""

    seconds_per_step: float = Field(gt=0.0)
    """Wall time of one training step."""
    num_devices: int = Field(ge=1)
    """Devices that took it."""
    device: str
    """What they are."""
    source: str
    """Where that stands, or how it was derived."""


class PublishedConfig(Section):
    """The result of the reference's run, and the conditions under which it holds."""

    protocol: str
    """Evaluation protocol of the number, `name@version`; the run must evaluate in the same way."""
    accuracy: float | None = Field(default=None, ge=0.0, le=1.0)
    """Accuracy after training; null where none was published."""
    accuracy_before: float | None = Field(default=None, ge=0.0, le=1.0)
    """Accuracy of the model that training starts from, likewise."""
    at_least: bool = False
    """The publication says "more than": anything above `accuracy` reproduces it too."""
    rounding: float = Field(default=0.005, ge=0.0)
    """Half of the last digit that was published."""
    items: int | None = Field(default=None, ge=1)
    """Held-out items of the number."""
    train_rows: int = Field(ge=1)
    """Rows that the reference trains on."""
    steps_per_epoch: int = Field(ge=1)
    """Its steps an epoch."""
    total_steps: int = Field(ge=1)
    """Its steps in all."""
    source: str
    """Where the number stands."""
    conditions: str
    """What else it depends on."""
    speed: PublishedSpeed | None = None
    """How fast the reference is; null where nothing is known."""
