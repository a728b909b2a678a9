"""Collects the contents of the page that compares runs: figures, charts, and items whose answers flipped."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from statistics import fmean

from rl_core.data.images import ImageStore
from rl_core.data.prepared import IMAGES_FILE
from rl_core.evaluation.comparison import Comparison, Shares, compare_groups, group_accuracy
from rl_core.evaluation.items import EvaluationItem, Mode
from rl_core.evaluation.result import item_shares, summarise
from rl_core.evaluation.statistics import holm
from tasks.comparison.groups import RunGroup, protocols_of, what_differs
from tasks.comparison.page import (
    ComparisonPage,
    ComparisonRow,
    EqualAnswers,
    FlippedItem,
    GroupAnswers,
    GroupRow,
    RunRow,
)
from tasks.comparison.stragglers import stragglers
from tasks.results.report_charts import MOST_SERIES, Chart, Series
from tasks.results.report_page import image_uri
from tasks.results.run_facts import RunFacts


def comparison_page(groups: Sequence[RunGroup], *, num_items: int) -> ComparisonPage:
    """Everything that the page shows. The first group is the reference. Raises ValueError where there are more groups
    than a chart has colours, or no mode in which all runs were evaluated."""
    if len(groups) > MOST_SERIES:
        raise ValueError(f"{len(groups)} groups: a chart can show at most {MOST_SERIES}; compare fewer runs")
    mode = _common_mode(groups)
    shares = [group_shares(group, mode) for group in groups]
    differing = what_differs([group.runs[0] for group in groups])
    comparisons, remarks = _compare(groups, shares, differing)
    found = {row.place: row.comparison for row in comparisons}
    return ComparisonPage(
        mode=mode,
        num_items=max((row.comparison.n for row in comparisons), default=0),
        groups=[_group_row(group, of_group, mode) for group, of_group in zip(groups, shares, strict=True)],
        comparisons=comparisons,
        before_and_after=before_and_after(groups, mode),
        charts=charts(groups),
        seed_charts=seed_charts(groups[0]) if len(groups) == 1 and len(groups[0].runs) > 1 else [],
        runs=[_run_row(run, place, mode) for place, group in enumerate(groups) for run in group.runs],
        differing=differing,
        items=flipped_items(groups, mode, found, count=num_items),
        remarks=[*remarks, *_remarks(groups)],
    )


def _common_mode(groups: Sequence[RunGroup]) -> Mode:
    """The first mode in which all evaluated runs were evaluated. Raises ValueError where there is none."""
    evaluated = [run for group in groups for run in group.evaluated]
    if not evaluated:
        return groups[0].runs[0].config.evaluation.modes[0]
    common = set.intersection(*(set(run.trained) for run in evaluated))
    mode = next((mode for mode in evaluated[0].config.evaluation.modes if mode in common), None)
    if mode is None:
        raise ValueError("the runs were evaluated in no common mode (evaluation.modes)")
    return mode


def group_shares(group: RunGroup, mode: Mode) -> list[Shares]:
    """Share of right responses to each item, for each evaluated run."""
    return [item_shares(run.trained[mode]) for run in group.evaluated]


def _compare(
    groups: Sequence[RunGroup], shares: Sequence[Sequence[Shares]], differing: Mapping[str, Sequence[str]]
) -> tuple[list[ComparisonRow], list[str]]:
    """Compare every group with the first one. Returns the comparisons, and why some groups cannot be compared."""
    done: dict[int, Comparison] = {}
    remarks = []
    for place in range(1, len(groups)):
        if not shares[0] or not shares[place]:
            continue  # runs that are not evaluated have their own remark
        try:
            done[place] = compare_groups(shares[0], shares[place])
        except ValueError as error:
            remarks.append(f"{groups[place].label} and {groups[0].label} cannot be compared: {error}.")
    p_items = _adjusted({place: comparison.p_value for place, comparison in done.items()})
    over_seeds = {place: comparison.over_seeds for place, comparison in done.items()}
    p_seeds = _adjusted({place: found.p_value for place, found in over_seeds.items() if found is not None})
    rows = [
        ComparisonRow(
            label=groups[place].label,
            place=place,
            reference=groups[0].label,
            differs=[
                (key, values[place], values[0]) for key, values in differing.items() if values[place] != values[0]
            ],
            comparison=comparison,
            p_items=p_items[place],
            p_seeds=p_seeds.get(place),
        )
        for place, comparison in done.items()
    ]
    return rows, remarks


def _adjusted(p_values: Mapping[int, float]) -> dict[int, float]:
    return dict(zip(p_values, holm(list(p_values.values())), strict=True))


def _group_row(group: RunGroup, shares: Sequence[Shares], mode: Mode) -> GroupRow:
    return GroupRow(
        label=group.label,
        seeds=[run.config.seed for run in group.runs],
        base=fmean(summarise(run.base[mode]).accuracy for run in group.evaluated) if shares else None,
        accuracy=group_accuracy(shares) if shares else None,
        stragglers=stragglers(group, mode),
    )


def _run_row(run: RunFacts, place: int, mode: Mode) -> RunRow:
    rewards = [record["reward/overall"] for record in run.metrics if "reward/overall" in record]
    return RunRow(
        name=run.run.name,
        place=place,
        seed=run.config.seed,
        base=summarise(run.base[mode]).accuracy if run.is_evaluated else None,
        accuracy=summarise(run.trained[mode]) if run.is_evaluated else None,
        rewards=(rewards[0], rewards[-1]) if rewards else None,
        steps=len(rewards),
        seconds=sum(manifest.seconds for manifest in run.stages),
    )


def _remarks(groups: Sequence[RunGroup]) -> list[str]:
    runs = [run for group in groups for run in group.runs]
    remarks = [
        f"{run.run.name} is not evaluated yet: it is only in the curves." for run in runs if not run.is_evaluated
    ]
    if len(protocols_of(runs)) > 1:
        remarks.append(
            "The runs were not measured in the same way: their sections `evaluation` or `reward`, or the longest "
            "response, differ (below). A difference of accuracies may come from that."
        )
    for group in groups:
        seeds = [run.config.seed for run in group.runs]
        if len(set(seeds)) < len(seeds):
            remarks.append(f"{group.label} has several runs with one seed, which are not independent repetitions.")
    return remarks


Answers = Mapping[str, Sequence[EvaluationItem]]
"""[uid] -> responses of a model to the item."""


def flipped_items(
    groups: Sequence[RunGroup], mode: Mode, comparisons: Mapping[int, Comparison], *, count: int
) -> list[FlippedItem]:
    """Choose `count` items for each group: alternately items that it gained and that it lost, those with the largest
    difference first. The first group is the reference; `comparisons` has the other groups by their place."""
    chosen = list(dict.fromkeys(uid for found in comparisons.values() for uid in _by_turns(found)[:count]))
    if not chosen:
        return []
    answers = [[_by_uid(run.trained[mode]) for run in group.evaluated] for group in groups]
    images = _open_images(groups)
    return [_flipped_item(uid, groups, answers, comparisons, images) for uid in chosen]


def _by_turns(found: Comparison) -> list[str]:
    return [uid for uid in chain.from_iterable(zip_longest(found.gained, found.lost)) if uid is not None]


def _by_uid(items: Sequence[EvaluationItem]) -> Answers:
    answers: dict[str, list[EvaluationItem]] = {}
    for item in items:
        answers.setdefault(item.uid, []).append(item)
    return answers


def _open_images(groups: Sequence[RunGroup]) -> ImageStore | None:
    """Every run has the images of its held-out rows, so the first run whose data is still there is enough."""
    paths = (run.run.data / IMAGES_FILE for group in groups for run in group.evaluated)
    path = next((path for path in paths if path.is_file()), None)
    return ImageStore(path) if path else None


def _flipped_item(
    uid: str,
    groups: Sequence[RunGroup],
    answers: Sequence[Sequence[Answers]],
    comparisons: Mapping[int, Comparison],
    images: ImageStore | None,
) -> FlippedItem:
    item = next(of_run[uid][0] for of_group in answers for of_run in of_group if uid in of_run)
    shown = [image for image in item.image_uids if images is not None and image in images]
    return FlippedItem(
        images=[image_uri(images.image(image)) for image in shown if images is not None],
        question=item.question.replace("<image>", "").strip(),
        truth=item.answer,
        groups=[
            _group_answers(group.label, [of_run[uid] for of_run in of_group if uid in of_run])
            for group, of_group in zip(groups, answers, strict=True)
        ],
        kinds=[
            f"{'gained' if found.flipped[uid] > 0 else 'lost'}-{place}"
            for place, found in comparisons.items()
            if uid in found.flipped
        ],
    )


def _group_answers(label: str, by_model: Sequence[Sequence[EvaluationItem]]) -> GroupAnswers:
    responses = [response for responses in by_model for response in responses]
    answers = Counter((response.response, response.is_right) for response in responses)
    return GroupAnswers(
        label=label,
        right=sum(response.is_right is True for response in responses),
        models=sum(response.is_right is not None for response in responses),
        answers=[
            EqualAnswers(response=text, is_right=correct, times=times)
            for (text, correct), times in answers.most_common()
        ],
    )


def before_and_after(groups: Sequence[RunGroup], mode: Mode) -> Chart:
    """Held-out accuracy of base and trained models: a line for the mean of each group, a point for each run."""
    series = []
    for group in groups:
        runs = [(summarise(run.base[mode]).accuracy, summarise(run.trained[mode]).accuracy) for run in group.evaluated]
        means = [fmean(values) for values in zip(*runs, strict=True)]
        points = [(float(side), accuracy) for run in runs for side, accuracy in enumerate(run)]
        series.append(Series(label=group.label, steps=[0.0, 1.0][: len(means)], values=means, points=points))
    return Chart(
        title="Before and after",
        caption="Held-out accuracy of the base and the trained models; each point is a run.",
        unit="share",
        series=series,
        ticks=("before", "after"),
    )


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
    """A chart for each run, with mean and range of all: held-out accuracy, or training's without validations."""
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
