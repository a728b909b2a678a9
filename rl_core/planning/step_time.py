"""A forecast of the seconds of a training step: its work (`StepWork`) at the rates of the devices (`DeviceRates`), in
an arrangement of workers (docs/cluster.md, "Which placement").

    generate = prefill_token * prompt tokens + decode_fixed * decode steps + decode_sequence * response tokens
    update   = update_fixed * optimizer steps + update_token * tokens + forward_token * tokens without a gradient
               + exchange * optimizer steps * 2 (k - 1) / k
    step     = sync + generate + update + other                 in turn
    step     = sync + compare + max(generate, update) + other   at the same time

The tokens are those of the generator and of the learner with the most. The exchange is that of k replicas of the
weights: an all-reduce in a ring, in which each sends its gradients 2 (k - 1) / k times (Patarasuk and Yuan 2009).
Several workers that share a machine's cores with the run's process take some seconds longer for each batch and update,
`apart_generate` and `apart_update`, whatever their size, and `beside` times as long where some generate while others
train. The calls of the workers are part of `other`: placements differ by one or two of them, which is less than 2 % of
a step of half a second.

A sequence is in flight for as many decode steps as it has tokens, so the sum of the sequences in flight over all decode
steps is the number of response tokens, however their number falls towards the end; and the longest response bounds the
decode steps from below.
"""

from dataclasses import dataclass, replace

from rl_core.config.cluster import ClusterConfig
from rl_core.config.tolerances import COMPARED_GROUPS, COMPARED_TOKENS
from rl_core.planning.device_rates import DeviceRates
from rl_core.planning.shards import shards
from rl_core.planning.step_work import StepWork
from rl_core.planning.worker_share import Share


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrangement:
    """Which workers generate, which train, and when.

    Attributes:
        generators: Generators, each of one or several workers.
        learners: Parts that an update is dealt into.
        learner_workers: Workers that compute a part together, each a slice of its tokens.
        replicas: Replicas of the weights, which add up their gradients once in an optimizer step.
        in_flight: Most sequences that a generator decodes at a time.
        is_split: Whether those that generate do not train.
        is_overlapped: Whether the batch of the next step is generated beside the update (one step off-policy).
    """

    generators: int
    learners: int
    learner_workers: int = 1
    replicas: int = 1
    in_flight: int
    is_split: bool = False
    is_overlapped: bool = False

    @classmethod
    def of(cls, cluster: ClusterConfig, *, in_flight: int, staleness: int) -> "Arrangement":
        """The arrangement that a config asks for. On colocated workers nothing overlaps, whatever the staleness."""
        return cls(
            generators=cluster.generators // cluster.tensor_parallel_size,
            learners=cluster.trainers // cluster.sequence_parallel_size,
            learner_workers=cluster.sequence_parallel_size,
            replicas=cluster.trainers // shards(cluster),
            in_flight=in_flight,
            is_split=cluster.is_split,
            is_overlapped=cluster.is_split and staleness > 0,
        )

    @property
    def is_apart(self) -> bool:
        """Whether there are several workers, each in a process of its own."""
        return self.is_split or self.generators > 1 or self.learners * self.learner_workers > 1


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTime:
    """The forecast of a step, in seconds.

    Attributes:
        generate: Generating the rollout batch.
        update: All passes of the trainer, and the exchange of gradients.
        exchange: The part of `update` in which gradients are exchanged.
        sync: Giving the generators the weights.
        compare: Generating and computing short responses, on which generator and trainer are compared before the
            update; 0 unless generation overlaps with the update.
        other: In which no device works.
        is_overlapped: Whether `generate` and `update` are at the same time.
    """

    generate: float
    update: float
    exchange: float = 0.0
    sync: float
    compare: float
    other: float
    is_overlapped: bool

    @property
    def step(self) -> float:
        """The whole step."""
        work = max(self.generate, self.update) if self.is_overlapped else self.generate + self.update
        return self.sync + self.compare + work + self.other


def step_time(work: StepWork, rates: DeviceRates, arrangement: Arrangement) -> StepTime:
    """The forecast of a step's seconds."""
    apart = (rates.apart_generate, rates.apart_update) if arrangement.is_apart else (0.0, 0.0)
    slower = rates.beside if arrangement.is_overlapped else 1.0
    exchange = exchange_seconds(work, rates, arrangement)
    return StepTime(
        generate=slower * (generate_seconds(work, rates, arrangement) + apart[0]),
        update=slower * (pass_seconds(work, rates, arrangement) + apart[1]) + exchange,
        exchange=exchange,
        sync=rates.sync_between if arrangement.is_split else rates.sync_within,
        compare=compare_seconds(work, rates, arrangement) if arrangement.is_overlapped else 0.0,
        other=rates.other,
        is_overlapped=arrangement.is_overlapped,
    )


def generate_seconds(work: StepWork, rates: DeviceRates, arrangement: Arrangement) -> float:
    """Seconds of the generator with the most prompts. A prompt is computed once for all its responses."""
    prompts = Share.of(work.prompts, arrangement.generators).most
    sequences = prompts * work.n
    return (
        rates.prefill_token * prompts * work.lengths.prompt
        + rates.decode_fixed * decode_steps(work, sequences, arrangement.in_flight)
        + rates.decode_sequence * sequences * work.lengths.response
    )


def decode_steps(work: StepWork, sequences: int, in_flight: int) -> float:
    """Decode steps until the last of some sequences has ended: those that wait for a place begin at the rate at which
    others end, and the one that begins last is taken to be the longest."""
    waiting = max(0, sequences - in_flight)
    return waiting * work.lengths.response / in_flight + work.lengths.longest


def pass_seconds(work: StepWork, rates: DeviceRates, arrangement: Arrangement) -> float:
    """Seconds of the passes and optimizer steps of the learner with the most groups."""
    updated, forwarded = update_tokens(work, arrangement)
    return rates.update_fixed * work.optimizer_steps + rates.update_token * updated + rates.forward_token * forwarded


def exchange_seconds(work: StepWork, rates: DeviceRates, arrangement: Arrangement) -> float:
    """Seconds in which replicas of the weights add up their gradients."""
    return rates.exchange * work.optimizer_steps * sendings(arrangement.replicas)


def sendings(replicas: int) -> float:
    """How often each replica sends its gradients until all of them have the sum: in a ring, a part of them at a time,
    to add them up and then to hand out the sum."""
    return 2 * (replicas - 1) / replicas


def update_tokens(work: StepWork, arrangement: Arrangement) -> tuple[float, float]:
    """Tree tokens of the worker with the most in a step: with a gradient, and without."""
    share = work.group_tokens / arrangement.learner_workers
    updated = sum(update.steps * Share.of(update.groups, arrangement.learners).most for update in work.updates)
    return updated * share, work.forwards * Share.of(work.prompts, arrangement.learners).most * share


def compare_seconds(work: StepWork, rates: DeviceRates, arrangement: Arrangement) -> float:
    """Seconds of short responses to the first prompts, and of the trainer's pass over them. Nothing overlaps yet."""
    short = replace(
        work.lengths,
        response=min(COMPARED_TOKENS, work.lengths.response),
        longest=min(COMPARED_TOKENS, work.lengths.longest),
    )
    compared = replace(work, prompts=min(COMPARED_GROUPS, work.prompts), lengths=short, updates=(), forwards=1)
    return generate_seconds(compared, rates, arrangement) + pass_seconds(compared, rates, arrangement)
