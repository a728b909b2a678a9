"""The forecast of step time for a plan: measured steps of the run, carried over to other placements and lengths by what
a card can do; before the first steps what is published of its GPU alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any, Final

from rl_core.config.run import RunConfig
from rl_core.planning.batches import longest_sequence
from rl_core.planning.gpu import CARDS, UNLISTED, Card, Gpu, card_named
from rl_core.planning.memory import memory_forecast
from rl_core.planning.memory_rules import MemoryLimit, is_possible
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.rules import value_problems
from rl_core.planning.settings import resolve_auto
from rl_core.planning.step_time import ARITHMETIC, BANDWIDTH, CardTime, Lengths, StepTime
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory

NEWEST: Final = 50
"""Steps that are looked at: responses change their lengths in the course of a training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecaster:
    """The forecast of a run's steps on its devices: what each of them can do, and the run's config with the median of
    the seconds that were measured in its placement, if any were."""

    sizes: ModelSizes
    gpu: Gpu | None
    card: Card
    lengths: Lengths
    measured: tuple[RunConfig, StepTime] | None = None

    def step_time(self, config: RunConfig, *, response: float | None = None) -> StepTime:
        """A step in the placement of a config, with responses of this mean length where one is given. Each part takes
        as many times the assumed seconds as it did where it was measured."""
        lengths = self.lengths if response is None else replace(self.lengths, response=response)
        time = self._assumed(config, lengths)
        if self.measured is None:
            return time
        configured, found = self.measured
        own = self._assumed(configured, self.lengths)
        generate, update = time.generate * found.generate / own.generate, time.update * found.update / own.update
        return replace(found, generate=generate, update=update, is_overlapped=time.is_overlapped)

    def _assumed(self, config: RunConfig, lengths: Lengths) -> StepTime:
        resolved = resolve_auto(config, self.sizes, self.gpu).config
        in_flight = resolved.rollout.max_num_seqs
        if self.gpu is not None and self.gpu.memory_gib is not None:
            cached = memory_forecast(resolved, self.sizes, gpu_gib=self.gpu.memory_gib).cached_sequences
            usual = lengths.prompt / config.rollout.n + lengths.response  # the responses of a group share its prompt
            in_flight = max(1, min(in_flight, int(cached * longest_sequence(config) / usual)))
        return CardTime(config=resolved, sizes=self.sizes, card=self.card, lengths=lengths).step(in_flight)

    def placements(self, config: RunConfig) -> Iterator[RunConfig]:
        """Colocated, split in turn, and split one step off, as far as config and memory allow them. A split has the
        configured number of generating devices, or if the config is colocated the one with the shortest step."""
        cluster = config.cluster
        numbers = [cluster.generating_devices] if cluster.is_split else range(1, cluster.devices)
        yield _placed(config)
        for staleness in (0, 1):
            splits = [_placed(config, generating=number, staleness=staleness) for number in numbers]
            if possible := [split for split in splits if self._may_be(split)]:
                yield min(possible, key=lambda split: self.step_time(split).step)

    def _may_be(self, config: RunConfig) -> bool:
        """Whether `plan` refuses neither the workers nor the staleness, and the memory suffices where it is known."""
        if any(problem.fatal and problem.where == "rollout.staleness" for problem in value_problems(config)):
            return False
        if self.gpu is None or self.gpu.memory_gib is None:
            return is_possible(config, self.sizes)
        return MemoryLimit(gib=self.gpu.memory_gib, on_gpu=True).fits(config, self.sizes)


def step_forecaster(
    config: RunConfig, sizes: ModelSizes | None, run: RunDirectory, gpu: Gpu | None
) -> tuple[Forecaster | None, str]:
    """The forecast of a run, and in words for which lengths it is and what it assumes; or None, and what is missing."""
    if sizes is None:
        return None, "not known: the model is not here yet, or its parameters could not be counted"
    card = (card_named(gpu.name) if gpu else None) or UNLISTED
    steps = measured_steps(run, config, gpu) if run.root.is_dir() else []
    if card is UNLISTED and not steps:
        return None, _unknown_words(gpu)
    metrics = [record for record in read(run.metrics) if "response_length/mean" in record][-NEWEST:]
    lengths = mean_lengths(metrics) if metrics else Lengths.assumed(config)
    images = f", {lengths.image_share:.0%} of a prompt images" if sizes.vision_parameters else ""
    rates = f"{BANDWIDTH:.0%} of its bandwidth and {ARITHMETIC:.0%} of its arithmetic{images}, without rewards"
    assumed = f"assumed from the data sheet of {card.name}, at {rates}"
    source = f"measured in {len(steps)} steps of this run" if steps else assumed
    own = f"prompts of {lengths.prompt:,.0f} and responses of {lengths.response:,.0f} tokens ({lengths.source})"
    measured = (config, median_time(steps)) if steps else None
    return Forecaster(sizes=sizes, gpu=gpu, card=card, lengths=lengths, measured=measured), f"{own}, {source}"


def _unknown_words(gpu: Gpu | None) -> str:
    if gpu is None:
        return "not known: nothing is published of this CPU's speed; plan again after some steps on it"
    kind = f"nothing is known of the speed of {gpu.name}" if gpu.name else "the kind of GPU is not known"
    return f"not known: {kind}; name one like it with --gpu ({', '.join(CARDS)}), or plan again after some steps"


def measured_steps(run: RunDirectory, config: RunConfig, gpu: Gpu | None) -> list[StepTime]:
    """The newest steps of a run in the placement that is planned for, on as many such devices."""
    name = "CPU" if gpu is None else gpu.name or "a GPU of an unknown kind"
    steps = []
    for timing in read(run.timings)[-NEWEST:]:
        devices = [device.partition(" with ")[0] for device in timing.get("workers", {}).get("device", [])]
        if devices == config.cluster.ranks * [name]:
            steps += [step] if (step := measured_step(timing, config)) else []
    return steps


def measured_step(timing: Mapping[str, Any], config: RunConfig) -> StepTime | None:
    """A step from its line in timings.jsonl. None for one that is unlike the others: the first after a start,
    one whose rollouts an interrupted attempt had recorded, and one in another placement."""
    generate, update = timing["workers"]["generate_s"], timing["workers"]["update_s"]
    used = sum(seconds > 0.0 for seconds in generate), sum(seconds > 0.0 for seconds in update)
    if any(timing["workers"]["load_s"]) or used != (config.cluster.generators, config.cluster.trainers):
        return None
    is_overlapped = config.cluster.is_split and config.rollout.staleness > 0
    time = StepTime(generate=max(generate), update=max(update), sync=timing["sync_s"], is_overlapped=is_overlapped)
    return replace(time, other=max(0.0, timing["total_s"] - time.step))


def median_time(times: Sequence[StepTime]) -> StepTime:
    """The median of each part of some steps of one placement."""
    parts = {part: median(getattr(time, part) for time in times) for part in ("generate", "update", "sync", "other")}
    return replace(times[0], **parts)


def mean_lengths(steps: Sequence[Mapping[str, Any]]) -> Lengths:
    """The mean lengths of some lines of metrics.jsonl."""
    names = {"prompt": "prompt_length/mean", "response": "response_length/mean", "longest": "response_length/max"}
    means = {name: mean(step[key] for step in steps) for name, key in names.items()}
    return Lengths(**means, source="the run's own steps")


def _placed(config: RunConfig, *, generating: int = 0, staleness: int = 0) -> RunConfig:
    """The config with so many generating devices on each machine; with none, all workers generate and train."""
    changed = {"placement": "split", "generating_devices": generating} if generating else {"placement": "colocated"}
    cluster = config.cluster.model_copy(update=changed)
    rollout = config.rollout.model_copy(update={"staleness": staleness})
    return config.model_copy(update={"cluster": cluster, "rollout": rollout})
