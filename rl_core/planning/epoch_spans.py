"""Which steps belong to which epoch. All epochs have as many steps, unless a training has gone on with other rows or
another batch size: then the epoch that had begun goes on after as many prompts as it has had."""

import math
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class DataPlace:
    """Where a training is after `step`: so many epochs are whole, and the next one has had `prompts` prompts. The epoch
    of this step has begun with the step `first`."""

    step: int
    epochs: int
    prompts: int
    first: int


START: Final = DataPlace(step=0, epochs=0, prompts=0, first=1)
"""The place of a training whose rows and batch size have never changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochSpans:
    """The spans of epochs of `steps` steps, with `batch` prompts each, after the place `since`."""

    steps: int
    batch: int = 1
    since: DataPlace = START

    def epoch_of(self, step: int) -> int:
        """The epoch, counted from 1, of a step after the place; 0 for the step 0."""
        return math.ceil((step + self._ahead) / self.steps)

    def first(self, epoch: int) -> int:
        """The first step of an epoch that is no earlier than the place."""
        return self.since.first if epoch == self.epoch_of(self.since.step) else self.end(epoch - 1) + 1

    def end(self, epoch: int) -> int:
        """The last step of an epoch that is no earlier than the place."""
        return epoch * self.steps - self._ahead

    def has_passed(self, epoch: int) -> bool:
        """Whether an epoch was whole before the place, so that other rows or batches have decided of its steps."""
        return epoch < self.epoch_of(self.since.step)

    def place(self, step: int) -> DataPlace:
        """The place after a step."""
        if step == self.since.step:
            return self.since
        epochs, position = divmod(step + self._ahead, self.steps)
        return DataPlace(step=step, epochs=epochs, prompts=position * self.batch, first=self.first(self.epoch_of(step)))

    @property
    def _ahead(self) -> int:
        """How many steps earlier the place is than it were if all epochs had had as many steps."""
        had = batches_had(self.since.prompts, batch=self.batch, batches=self.steps)
        return self.since.epochs * self.steps + had - self.since.step


def batches_had(prompts: int, *, batch: int, batches: int) -> int:
    """How many of the batches of an epoch are over after so many prompts. One that was begun counts."""
    return min(math.ceil(prompts / batch), batches)
