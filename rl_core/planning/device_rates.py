"""How fast devices do the parts of a training step."""

from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceRates:
    """Seconds that the parts of a step take.

    A decode step takes `decode_fixed + decode_sequence * sequences in flight`: the weights are read once for all
    sequences, keys and values and the arithmetic are each sequence's own. An optimizer step takes `update_fixed +
    update_token * tree tokens`, and replicas of the weights exchange their gradients after it.

    Attributes:
        decode_fixed: Seconds of a decode step of a generator, however many sequences it has.
        decode_sequence: Further seconds of it for each sequence.
        prefill_token: Seconds of a prompt token of a generator.
        update_fixed: Seconds of an optimizer step, however many tokens a learner has: above all the optimizer.
        update_token: Further seconds of it for each of a worker's tree tokens: forward and backward pass.
        forward_token: Seconds of a worker's tree token in a pass without a gradient.
        exchange: Seconds in which a worker sends its gradients once to the other replicas of the weights: all of them
            with `sharding: none`, those of its part of the weights with `hybrid`. What workers exchange over which one
            replica is spread is sent in each pass, beside its computation, and counts in the seconds of its tokens.
        sync_within: Seconds until generators that share a device with the trainer have its weights, and sleep again.
        sync_between: Seconds until generators on other devices have the trainer's weights.
        other: Seconds of a step in which no device works: rewards, records, the loop itself, its calls of the workers.
        apart_generate: Further seconds of generating a rollout batch where several workers have processes of their own,
            on the cores of one machine, which they share with the run's process.
        apart_update: The same of an update's passes.
        beside: Times as long as alone that generators and trainers take while both work (one step off-policy).
    """

    decode_fixed: float
    decode_sequence: float
    prefill_token: float
    update_fixed: float
    update_token: float
    forward_token: float
    exchange: float = 0.0
    sync_within: float
    sync_between: float
    other: float
    apart_generate: float = 0.0
    apart_update: float = 0.0
    beside: float = 1.0

    def generating(self, *, fixed: float, growing: float) -> Self:
        """The rates with other seconds of generation: times `fixed` of each decode step, times `growing` of each
        token."""
        return replace(
            self,
            decode_fixed=fixed * self.decode_fixed,
            decode_sequence=growing * self.decode_sequence,
            prefill_token=growing * self.prefill_token,
        )

    def updating(self, *, fixed: float, growing: float) -> Self:
        """The rates with other seconds of the trainer: times `fixed` of each optimizer step, times `growing` of each
        token."""
        return replace(
            self,
            update_fixed=fixed * self.update_fixed,
            update_token=growing * self.update_token,
            forward_token=growing * self.forward_token,
        )
