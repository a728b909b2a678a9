"""The curves of a comparison: one line for each group, with the range of its seeds; and each seed beside its group."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from tasks.comparison.groups import RunGroup
from tasks.results.report_charts import Chart, Series


def charts(groups: Sequence[RunGroup]) -> list[Chart]:
    """The charts, with one line for each group and the range of its seeds."""
    accuracy = f"reward/{groups[0].runs[0].config.evaluation.accuracy_key}"
    shown = [
        ("Reward", "Mean of the optimised reward over a step's rollouts.", "reward/overall", "plain"),
        ("Training accuracy", "Share of right responses among a step's rollouts.", accuracy, "share"),
        ("Held-out accuracy", "Greedy, on the held-out rows, during training.", "val/accuracy", "share"),
        ("Response length", "Mean number of tokens of a response.", "response_length/mean", "plain"),
        ("Entropy", "Mean entropy of the next token in nats.", "actor/entropy", "plain"),
        ("KL", "How far a step changes the policy.", "actor/approx_kl", "plain"),
        ("Gradient norm", "Before clipping.", "actor/grad_norm", "plain"),
    ]
    return [
        Chart(title=title, caption=caption, unit=unit, series=[_series(group, metric) for group in groups])
        for title, caption, metric, unit in shown
    ]


def seed_charts(group: RunGroup) -> list[Chart]:
    """A chart for each run, beside mean and range of all: held-out accuracy, or training's without validations."""
    held_out, training = "val/accuracy", f"reward/{group.runs[0].config.evaluation.accuracy_key}"
    is_validated = any(held_out in record for run in group.runs for record in run.metrics)
    metric, caption = (held_out, "Held-out accuracy.") if is_validated else (training, "Training accuracy.")
    together = replace(_series(group, metric), label="all seeds")
    alone = [RunGroup(label=f"seed {run.config.seed}", runs=(run,)) for run in group.runs]
    return [
        Chart(title=one.label, caption=caption, unit="share", series=[_series(one, metric), together]) for one in alone
    ]


def _series(group: RunGroup, metric: str) -> Series:
    """Mean, lowest and highest value of the group's runs, at the steps that all of them have."""
    curves = [{record["step"]: record[metric] for record in run.metrics if metric in record} for run in group.runs]
    steps = sorted(set.intersection(*map(set, curves)))
    values = [[curve[step] for curve in curves] for step in steps]
    band = ([min(at) for at in values], [max(at) for at in values]) if len(curves) > 1 else None
    return Series(label=group.label, steps=steps, values=[fmean(at) for at in values], band=band)
