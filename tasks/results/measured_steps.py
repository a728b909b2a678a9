"""The steps of a run as the forecast of step time takes them, from its timings and metrics."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rl_core.config.run import RunConfig
from rl_core.planning.gpu import Gpu
from rl_core.planning.measured_rates import MeasuredStep
from rl_core.planning.shards import shards
from rl_core.planning.step_time import Arrangement
from rl_core.planning.step_work import Lengths, StepWork
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory

NEWEST: Final = 50
"""Steps that are looked at: responses change their lengths in the course of a training."""

_PASSES: Final = (
    *("old_log_probs_s", "reference_s", "values_s"),
    *("forward_backward_s", "exchange_s", "optimizer_s", "update_critic_s"),
)
"""The phases of a step in which the trainer works on its rollout batch."""


def measured_steps(run: RunDirectory, config: RunConfig, *, in_flight: int, gpu: Gpu | None) -> list[MeasuredStep]:
    """The newest steps of a run on devices like those that are planned for. On CPUs these must have been as many
    workers, since they share the cores. Empty for a run that has not begun, or whose version did not time its workers.

    Args:
        run: The run.
        config: Its config, whose section `cluster` may be another one than at those steps.
        in_flight: Most sequences that a generator decodes at a time.
        gpu: The GPU of each worker; None for workers on the CPU.
    """
    metrics = {record["step"]: record for record in read(run.metrics)}
    steps = [
        measured_step(timing, metrics[timing["step"]], config, in_flight=in_flight)
        for timing in read(run.timings)[-NEWEST:]
        if timing["step"] in metrics and _is_like(timing, config, gpu)
    ]
    return [step for step in steps if step is not None]


def measured_lengths(run: RunDirectory) -> Lengths | None:
    """The mean lengths of the newest steps of a run, on whatever devices they were made; None for a run without
    steps."""
    steps = [_lengths(record) for record in read(run.metrics) if "response_length/mean" in record][-NEWEST:]
    return Lengths.mean_of(steps) if steps else None


def measured_step(
    timing: Mapping[str, Any], metrics: Mapping[str, Any], config: RunConfig, *, in_flight: int
) -> MeasuredStep | None:
    """A step from its lines in timings.jsonl and metrics.jsonl. None for one that tells nothing of the others: the
    first after a start, and one whose rollouts were recorded by an interrupted attempt."""
    columns: Mapping[str, Sequence[float]] = timing.get("workers", {})
    if not columns or any(columns["load_s"]) or not any(columns["generate_s"]) or not any(columns["update_s"]):
        return None
    arrangement = _arrangement(columns, config, in_flight=in_flight, adds_up="exchange_s" in timing)
    generate, update = max(columns["generate_s"]), max(columns["update_s"])
    compare = 0.0
    if arrangement.is_overlapped:  # the workers' seconds have the comparison in them
        compare, passes = timing["agreement_s"], min(update, sum(timing.get(name, 0.0) for name in _PASSES))
        generate -= max(0.0, compare - (update - passes))
        update = passes
    return MeasuredStep(
        work=StepWork.of(config, _lengths(metrics)),
        arrangement=arrangement,
        generate=generate,
        update=update,
        exchange=timing.get("exchange_s", 0.0),
        sync=timing["sync_s"],
        compare=compare,
        total=timing["total_s"],
    )


def _lengths(metrics: Mapping[str, Any]) -> Lengths:
    return Lengths(
        prompt=metrics["prompt_length/mean"],
        response=metrics["response_length/mean"],
        longest=metrics["response_length/max"],
    )


def _is_like(timing: Mapping[str, Any], config: RunConfig, gpu: Gpu | None) -> bool:
    """Whether a step was made on such devices."""
    devices = timing.get("workers", {}).get("device", [])
    if gpu is None:
        return all(device.startswith("CPU") for device in devices) and len(devices) == config.cluster.ranks
    return bool(gpu.name) and set(devices) == {gpu.name}


def _arrangement(
    columns: Mapping[str, Sequence[float]], config: RunConfig, *, in_flight: int, adds_up: bool
) -> Arrangement:
    """The workers that generated, and those that trained; `adds_up`: whether these were replicas of the weights, or
    parts of several ones, and so exchanged their gradients after the passes."""
    generated, trained = (sum(seconds > 0.0 for seconds in columns[name]) for name in ("generate_s", "update_s"))
    is_split = generated + trained == len(columns["generate_s"])
    cluster = config.cluster
    return Arrangement(
        generators=max(1, generated // cluster.tensor_parallel_size),
        learners=max(1, trained // cluster.sequence_parallel_size),
        learner_workers=min(trained, cluster.sequence_parallel_size),
        replicas=trained // (shards(cluster) if cluster.sharding == "hybrid" else 1) if adds_up else 1,
        in_flight=in_flight,
        is_split=is_split,
        is_overlapped=is_split and config.rollout.staleness > 0,
    )
