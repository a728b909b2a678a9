"""Registers the merged model in MLflow, with its evaluation, and decides whether it becomes the champion.

The version is made from the run's folder, once, as soon as the registry can be reached.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_core.digests import digest_of
from rl_core.evaluation.comparison import Comparison, compare_answers
from rl_core.evaluation.items import RIGHT_COLUMN, EvaluationItem
from rl_core.evaluation.statistics import SIGNIFICANT
from rl_core.run_directory import RunDirectory
from tasks.results.run_facts import EVALUATED_MODELS, RunFacts
from tasks.tracking.run_tracking import ITEMS_TABLE, PipelineTracking, run_tags

if TYPE_CHECKING:
    from rl_core.tracking.mlflow_registry import ModelRegistry, RegisteredVersion
    from rl_core.tracking.mlflow_runs import MlflowPipeline

logger = logging.getLogger(__name__)

DECISION = "champion.decision"
"""Tag of a version: whether it became the champion, and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChampionDecision:
    """Whether a candidate model becomes the champion, because it has significantly more right answers than the current
    model, with the reason as a sentence. Without a comparison, the two cannot be compared item by item."""

    is_champion: bool
    comparison: Comparison | None
    reason: str


def register_model(tracking: PipelineTracking, run: RunDirectory) -> None:
    """Register the merged model of a run under the experiment's name, unless it is registered.

    The alias `champion` moves to it if it has significantly more right answers than the version that has the alias, to
    the same items and measured in the same way. If no version has the alias yet, it is compared with its base model.
    """
    tracking.show_pipeline("the registered model", lambda pipeline: _register(pipeline, RunFacts(run)))


def _register(pipeline: "MlflowPipeline", facts: RunFacts) -> None:
    from rl_core.tracking.mlflow_registry import ModelRegistry

    registry = ModelRegistry(pipeline.access, facts.config.experiment)
    identity = {"sightline.run": facts.run.name, "weights": digest_of(_weight_hashes(facts))}
    version = registry.find(identity) or _make(registry, pipeline, facts, identity)
    if DECISION in version.tags:
        return
    champion = registry.champion()
    if champion is not None and champion.version == version.version:
        return  # a process ended between the alias and the tag
    decided = _decide(registry, champion, version, facts)
    if decided.is_champion:
        registry.set_champion(version)
    tags = {DECISION: f"{'champion' if decided.is_champion else 'not champion'}: {decided.reason}"}
    if decided.comparison is not None:
        tags["champion.difference"] = f"{decided.comparison.difference:+.4f}"
        tags["champion.p_value"] = f"{decided.comparison.p_value:.3g}"
    registry.tag(version, tags)
    logger.info("%s is version %s of the registered model: %s", facts.run.name, version.version, decided.reason)


def _make(
    registry: "ModelRegistry", pipeline: "MlflowPipeline", facts: RunFacts, identity: dict[str, str]
) -> "RegisteredVersion":
    tags = {
        **_evaluation_tags(facts),  # first, as MLflow's pages show tags in their order
        **run_tags(facts.config, facts.run),
        **identity,
        "evaluation_run": pipeline.stage("evaluate-trained").run_id,
    }
    return registry.register(
        pipeline.parent,
        facts.run.merged_model,
        files=_weight_hashes(facts),
        tags=tags,
        description=describe(facts),
    )


def _evaluation_tags(facts: RunFacts) -> dict[str, str]:
    """Tags such as `greedy/trained/accuracy`, for every model and mode that was evaluated."""
    return {
        f"{mode}/{evaluated}/{name}": value
        for evaluated in EVALUATED_MODELS
        for mode, result in facts.results(evaluated).items()
        for name, value in {
            "accuracy": f"{result.accuracy:.4f}",
            "ci95": "{:.4f} to {:.4f}".format(*result.ci95),
            "items": f"{result.n}",
        }.items()
    }


def describe(facts: RunFacts) -> str:
    """The description of the version, in Markdown."""
    base, trained = (facts.headline(evaluated) for evaluated in EVALUATED_MODELS)
    return (
        f"Held-out accuracy {base.accuracy:.1%} → **{trained.accuracy:.1%}** ({trained.mode}, {trained.n} items), "
        f"from run `{facts.run.name}`. The weights: `{facts.run.merged_model.absolute()}`"
    )


def _decide(
    registry: "ModelRegistry", champion: "RegisteredVersion | None", version: "RegisteredVersion", facts: RunFacts
) -> ChampionDecision:
    pair = facts.paired_items()
    name = "its base model" if champion is None else f"version {champion.version}"
    if pair is None:
        return _not_comparable(name, "no mode has one response an item")
    base, trained = pair
    if champion is None:
        return _compared(name, _answers(base), _answers(trained))
    if champion.tags.get("protocol") != version.tags["protocol"]:
        return _not_comparable(name, "it was measured by another protocol")
    table = registry.table(champion.tags["evaluation_run"], ITEMS_TABLE)
    if table is None:
        return _not_comparable(name, f"its {ITEMS_TABLE} is no longer in MLflow")
    rows = zip(table["uid"], table["mode"], table[RIGHT_COLUMN], strict=True)
    current = {uid: is_right for uid, mode, is_right in rows if mode == trained[0].mode}
    return _compared(name, current, _answers(trained))


def _compared(name: str, current: Mapping[str, bool | None], candidate: Mapping[str, bool | None]) -> ChampionDecision:
    """The candidate becomes the champion when it is right more often than the current model, which people call `name`,
    and McNemar's p-value is below SIGNIFICANT. This says nothing of the ways in which the two were trained, which
    another seed may rank otherwise."""
    try:
        comparison = compare_answers(current, candidate)
    except ValueError as error:
        return _not_comparable(name, str(error))
    is_better = comparison.difference > 0 and comparison.p_value < SIGNIFICANT
    reason = (
        f"{'' if is_better else 'not '}significantly more right answers than {name}: {len(comparison.gained)} answers "
        f"gained, {len(comparison.lost)} lost of {comparison.n}, McNemar p = {comparison.p_value:.3g}"
    )
    return ChampionDecision(is_champion=is_better, comparison=comparison, reason=reason)


def _not_comparable(name: str, why: str) -> ChampionDecision:
    return ChampionDecision(is_champion=False, comparison=None, reason=f"not comparable with {name}: {why}")


def _answers(items: Sequence[EvaluationItem]) -> dict[str, bool | None]:
    return {item.uid: item.is_right for item in items}


def _weight_hashes(facts: RunFacts) -> dict[str, str]:
    """[name] -> SHA-256 of the merged model's files, without its card. Raises LookupError without a merged model."""
    merged = next((manifest for manifest in facts.stages if manifest.stage == "merge"), None)
    if merged is None:
        raise LookupError(f"{facts.run.name} has no merged model")
    return {path.removeprefix("merged/"): output.sha256 for path, output in merged.outputs.items()}
