"""Yields the prompts of each step, epoch after epoch, and can continue at any place."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from rl_core.data.ordering import Arrangement, Shuffle
from rl_core.planning.epoch_spans import batches_had
from rl_core.types import Int64Array, Prompt

_COUNTED: Final = {"rows": "rows", "batch_size": "prompts of a batch"}
_OTHERS: Final = {
    "content": "the content of the rows",
    "seed": "the seed",
    "shuffle": "data.shuffle",
    "source_weights": "data.source_weights",
    "ranks": "the curriculum",
}
"""What the settings of a place are called."""


class PromptLoader:
    """Endless batches of prompts. An epoch has as many batches as its rows fill; the others are left out of it.
    `content` is a digest of what the rows say. Raises ValueError where the rows do not fill one batch, or a source does
    not fill its share of one."""

    def __init__(
        self,
        dataset: Sequence[Prompt],
        *,
        batch_size: int,
        seed: int,
        shuffle: bool,
        arrangement: Arrangement | None = None,
        content: str = "",
    ) -> None:
        if len(dataset) < batch_size:
            raise ValueError(
                f"a batch of {batch_size} prompts is more than the {len(dataset)} rows there are; lower "
                "data.rollout_batch_size (or algorithm.online_filtering.mini_rollout_batch_size, or "
                "cold_start.batch_size), or add rows"
            )
        self._dataset = dataset
        self._batch_size = batch_size
        self._content = content
        self._shuffle = Shuffle(seed=seed, enabled=shuffle)
        self._arrangement = arrangement or Arrangement(data_sources=[""] * len(dataset))
        self._epoch = 0
        self._position = 0
        self._order = self._order_of(0)

    @property
    def epoch(self) -> int:
        """The epoch that the next batch belongs to, from 0."""
        return self._epoch

    @property
    def num_rows(self) -> int:
        """Number of rows that batches are made of."""
        return len(self._dataset)

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches in an epoch."""
        return len(self._dataset) // self._batch_size

    def next_batch(self) -> list[Prompt]:
        """The next `batch_size` prompts."""
        start = self._position * self._batch_size
        batch = [self._dataset[int(number)] for number in self._order[start : start + self._batch_size]]
        self._move_to(*divmod(self._epoch * self.batches_per_epoch + self._position + 1, self.batches_per_epoch))
        return batch

    def find(self, uids: Collection[str]) -> dict[str, Prompt]:
        """The prompts with these uids, as far as there are any."""
        return {prompt.uid: prompt for prompt in self._dataset if prompt.uid in uids}

    def state_dict(self) -> dict[str, Any]:
        """The place at which the loader is, with the settings that this place depends on."""
        return {"epoch": self._epoch, "position": self._position, **self._settings()}

    def load_state_dict(self, state: Mapping[str, Any]) -> list[str]:
        """Continue at a saved place. Where the place was in other rows or in another order, the epoch goes on after as
        many prompts as it has had; returns what is another, in words, and nothing where the place is the same."""
        differs = [
            f"the {_COUNTED[name]} were {state[name]} and are {value}"
            if name in _COUNTED
            else f"{_OTHERS[name]} changed"
            for name, value in self._settings().items()
            if state.get(name, value) != value  # a checkpoint of earlier software has no content
        ]
        if differs:
            prompts = state["position"] * state["batch_size"]
            had = batches_had(prompts, batch=self._batch_size, batches=self.batches_per_epoch)
            self._move_to(*divmod(state["epoch"] * self.batches_per_epoch + had, self.batches_per_epoch))
        else:
            self._move_to(state["epoch"], state["position"])
        return differs

    def _settings(self) -> dict[str, Any]:
        return {
            "rows": len(self._dataset),
            "batch_size": self._batch_size,
            "content": self._content,
            "seed": self._shuffle.seed,
            "shuffle": self._shuffle.enabled,
            **self._arrangement.settings(),
        }

    def _move_to(self, epoch: int, position: int) -> None:
        if epoch != self._epoch:
            self._order = self._order_of(epoch)
        self._epoch, self._position = epoch, position

    def _order_of(self, epoch: int) -> Int64Array:
        return self._arrangement.order(
            batches=self.batches_per_epoch, batch_size=self._batch_size, epoch=epoch, shuffle=self._shuffle
        )
