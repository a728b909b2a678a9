"""The section `published`: a result that a run is to reproduce. Nothing that the run computes depends on it."""

from pydantic import Field

from rl_core.section import Section


class PublishedSpeed(Section):
    """The speed of the published run, from which the hours of a reproduction are estimated."""

    seconds_per_step: float = Field(gt=0.0)
    """Wall time of one training step, in seconds."""
    num_devices: int = Field(ge=1)
    """Number of devices that the published run used."""
    device: str
    """Name of these devices."""
    source: str
    """Where this speed was published, or how it was derived."""


class PublishedConfig(Section):
    """A published result, and the conditions under which it holds."""

    protocol: str
    """Evaluation protocol of the published accuracy, `name@version`; the run must evaluate in the same way."""
    accuracy: float | None = Field(default=None, ge=0.0, le=1.0)
    """Accuracy after training; null where none was published."""
    accuracy_before: float | None = Field(default=None, ge=0.0, le=1.0)
    """Accuracy of the model that training starts from; null where none was published."""
    at_least: bool = False
    """The publication says "more than": anything above `accuracy` reproduces it too."""
    rounding: float = Field(default=0.005, ge=0.0)
    """Half of the last digit that was published."""
    items: int | None = Field(default=None, ge=1)
    """Number of held-out items that the accuracy was measured on."""
    train_rows: int = Field(ge=1)
    """Number of rows that the published run trains on."""
    steps_per_epoch: int = Field(ge=1)
    """Training steps of one epoch of the published run."""
    total_steps: int = Field(ge=1)
    """Training steps of the whole published run."""
    source: str
    """Where the accuracy was published."""
    conditions: str
    """What else the accuracy depends on."""
    speed: PublishedSpeed | None = None
    """Speed of the published run; null where it is not known."""
