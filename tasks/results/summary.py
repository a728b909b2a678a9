"""summary.json: the run in a few numbers, for people and for scripts."""

from typing import Any

from rl_core.evaluation.comparison import Comparison
from rl_core.evaluation.result import EvaluationResult
from tasks.results.run_facts import EVALUATED_MODELS, RunFacts, throughput


def summarise_run(facts: RunFacts) -> dict[str, Any]:
    """Accuracies with intervals, rewards, seconds by stage, throughput, and where things are.

    Raises:
        FileNotFoundError: the run was not evaluated.
    """
    run = facts.run
    evaluation: dict[str, Any] = {name: _figures(facts.headline(name)) for name in EVALUATED_MODELS}
    comparison = facts.comparison()
    if comparison is not None:
        evaluation["comparison"] = _comparison_figures(comparison)
    rewards = [record["reward/overall"] for record in facts.metrics if "reward/overall" in record]
    return {
        "run": run.name,
        "experiment": facts.config.experiment,
        "evaluation": evaluation,
        "reward": {"first_step": rewards[0], "last_step": rewards[-1]} if rewards else None,
        "steps": len(rewards),
        "timings_s": {manifest.stage: round(manifest.seconds, 3) for manifest in facts.stages},
        "reused": {manifest.stage: manifest.reused_from for manifest in facts.stages if manifest.reused_from},
        "throughput": throughput(facts.timings),
        "merged_model": str(run.merged_model),
        "report": str(run.report),
    }


def _comparison_figures(comparison: Comparison) -> dict[str, Any]:
    assert comparison.counts is not None, "both models gave one response to each item"
    return {
        "both": comparison.counts.both,
        "only_base": comparison.counts.only_first,
        "only_trained": comparison.counts.only_second,
        "neither": comparison.counts.neither,
        "difference": comparison.difference,
        "difference_ci95": list(comparison.ci95),
        "p_value": comparison.p_value,
    }


def _figures(result: EvaluationResult) -> dict[str, Any]:
    return {"accuracy": result.accuracy, "n": result.n, "ci95": list(result.ci95), "mode": result.mode}
