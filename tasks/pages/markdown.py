"""The pages of a run as Markdown: stages, steps, rollouts and validations with images, and links."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rl_core.data.images import ImageStore
from rl_core.data.prepared import IMAGES_FILE
from rl_core.evaluation.items import EvaluationItem
from rl_core.evaluation.result import items_words
from rl_core.records.metrics_log import read
from rl_core.records.rollout_files import RolloutRecord, read_rollouts
from rl_core.run_directory import RunDirectory
from rl_core.wording import duration
from tasks.cache.manifests import StageManifest
from tasks.results.report_page import image_uri, markdown_table
from tasks.results.run_facts import (
    StepAnswers,
    learning_doubts,
    losses_in_words,
    spread,
    validated_steps,
    validation_history,
)
from tasks.results.worker_rows import worker_rows

_STEPS = 30
_PROMPTS = 3
_TEXT = 300
_BLOCKS = "▁▂▃▄▅▆▇█"
_CURVE_POINTS = 40
_NOT_IN_MLFLOW = {"MLflow": "not shown there"}
_COLUMNS = {
    "reward": "reward/overall",
    "held-out accuracy": "val/accuracy",
    "length": "response_length/mean",
    "entropy": "actor/entropy",
    "gradient": "actor/grad_norm",
}


def stage_page(manifest: StageManifest) -> str:
    """A finished stage: an evaluation as a table with a row for each mode, any other stage as a table of facts."""
    origin = f"taken over from `{manifest.reused_from}`" if manifest.reused_from else "made by this run"
    size = sum(output.size for output in manifest.outputs.values())
    facts = {
        "wall time": duration(manifest.seconds),
        "origin": origin,
        "files": f"{len(manifest.outputs)} ({size / 1e6:.1f} MB)",
        "digest": f"`{manifest.digest}`",
    }
    if manifest.stage.startswith("evaluate-"):
        return f"# {manifest.stage}\n\n{_evaluation(manifest.result)}\n\n{facts_table(facts)}"
    facts |= {name: _figure(value) for name, value in _flat(manifest.result)}
    return f"# {manifest.stage}\n\n{facts_table(facts)}"


def facts_table(facts: Mapping[str, str]) -> str:
    """A table of names and values."""
    return markdown_table(("", ""), [[name, value] for name, value in facts.items()])


def steps_page(run: RunDirectory) -> str:
    """The newest steps of a run, the newest first."""
    records = [record for record in read(run.metrics) if "reward/overall" in record][-_STEPS:]
    timings = read(run.timings)
    seconds = {record["step"]: record["total_s"] for record in timings}
    shown = {label: name for label, name in _COLUMNS.items() if any(name in record for record in records)}
    rows = [
        [
            f"{record['step']}",
            *(_figure(record[name]) if name in record else "" for name in shown.values()),
            duration(seconds[record["step"]]) if record["step"] in seconds else "",
        ]
        for record in reversed(records)
    ]
    news = filter(None, [*learning_doubts(run), losses_in_words(run)])
    doubts = "".join(f"**{sentence}**\n\n" for sentence in news)
    return (
        f"# Steps\n\n{doubts}{_curves(run, shown)}{markdown_table(('step', *shown, 'time'), rows)}{_workers(timings)}"
    )


def _curves(run: RunDirectory, shown: Mapping[str, str]) -> str:
    """A small curve of each column over all steps, from its lowest value to its highest."""
    metrics, lines = read(run.metrics), []
    for label, name in shown.items():
        values = [record[name] for record in metrics if name in record]
        curve = sparkline([values[place] for place in spread(range(len(values)), _CURVE_POINTS)])
        lines.append(f"{label:<18} {curve:<{_CURVE_POINTS}} {_figure(values[0])} → {_figure(values[-1])}")
    return "\n".join(["```", *lines, "```", "", ""]) if lines else ""


def sparkline(values: Sequence[float]) -> str:
    """A line of blocks, the lowest value as the smallest; a value that is no number is a gap."""
    known = [value for value in values if math.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    span = (high - low) or 1.0

    def mark(value: float) -> str:
        return _BLOCKS[round((len(_BLOCKS) - 1) * ((value - low) / span))] if math.isfinite(value) else " "

    return "".join(map(mark, values))


def _workers(timings: Sequence[Mapping[str, Any]]) -> str:
    """What each worker did so far; nothing for a run with one worker."""
    rows = worker_rows(timings)
    if len(rows) < 2:
        return ""
    cells = [
        [
            *(row.name, f"{row.device}, {row.host}"),
            *(f"{share:.0%}" for share in row.shares.values()),
            "" if row.memory is None else f"{row.memory:.2f} GiB",
        ]
        for row in rows
    ]
    return f"\n## Workers\n\n{markdown_table(('worker', 'device', *rows[0].shares, 'memory'), cells)}"


def links_page(run: RunDirectory, *, mlflow: Mapping[str, str], resume: str) -> str:
    """Where a run can be looked at, and the commands for it."""
    facts = {
        **({f"MLflow, {what}": f"[{address}]({address})" for what, address in mlflow.items()} or _NOT_IN_MLFLOW),
        "folder": f"`{run.root.absolute()}`",
        "log": f"`{run.log.absolute()}`",
        "report, at the end": f"`{run.report.absolute()}`",
        "rollouts": f"`sightline show {run.name}`",
        "answers to held-out prompts": f"`sightline show {run.name} --validation`",
        "continue": f"`{resume}`",
    }
    return f"# {run.name}\n\n{facts_table(facts)}"


def rollouts_page(run: RunDirectory, step: int) -> str:
    """The first prompts of a step with images, responses, rewards and advantages."""
    records = read_rollouts(run.rollouts(step))
    groups = [list(group) for _, group in groupby(records, key=lambda record: record.prompt_uid)]
    images = ImageStore(run.data / IMAGES_FILE)
    parts = [_group(group, images) for group in groups[:_PROMPTS]]
    more = f"`sightline show {run.name} --step {step}` shows all {len(groups)} prompts."
    return "\n\n".join([f"# Rollouts of step {step}", *parts, more]) + "\n"


def validation_page(run: RunDirectory) -> str:
    """The first held-out prompts with images, and the responses to them in each validation."""
    steps, history = validated_steps(run), validation_history(run)
    images = ImageStore(run.data / IMAGES_FILE)
    parts = [_answers(answers, images) for answers in list(history.values())[:_PROMPTS]]
    command = f"sightline show {run.name} --validation --step {steps[-1]}"
    more = f"`{command}` shows the answers to all {len(history)} prompts."
    return "\n\n".join([f"# Held-out prompts, validated after step {steps[-1]}", *parts, more]) + "\n"


def _answers(answers: StepAnswers, images: ImageStore) -> str:
    _, first = answers[0]
    rows = [
        [
            f"{step}",
            _conversation(item, images),
            item.error or _figure(item.components["overall"]),
            item.grade,
        ]
        for step, item in answers
    ]
    asked = _asked(first.image_uids, first.question, first.answer, images)
    return f"{asked}\n\n{markdown_table(('after step', 'response', 'reward', 'grade'), rows)}"


def _group(group: Sequence[RolloutRecord], images: ImageStore) -> str:
    first = group[0]
    rows = [
        [
            _conversation(record, images),
            record.error or _figure(record.components["overall"]),
            "not trained on" if record.advantage is None else f"{record.advantage:+.3f}",
        ]
        for record in group
    ]
    table = markdown_table(("response", "reward", "advantage"), rows)
    return f"{_asked(first.image_uids, first.question, first.answer, images)}\n\n{table}"


def _asked(image_uids: Sequence[str], question: str, answer: str, images: ImageStore) -> str:
    return f"{_pictures(image_uids, images)}\n\n{_escaped(question)}\n\nAnswer: {_escaped(answer)}"


def _conversation(record: RolloutRecord | EvaluationItem, images: ImageStore) -> str:
    """A cell with what the model has said, below each turn with calls their results and images."""
    parts = []
    for turn in record.turns[:-1]:
        lines = [turn["content"]] if "content" in turn else [f"→ {call['result']}" for call in turn["calls"]]
        parts += [*map(_escaped, lines), _pictures(turn.get("image_uids", ()), images)]
    return "<br>".join(filter(None, [*parts, _escaped(record.response)]))


def _pictures(uids: Sequence[str], images: ImageStore) -> str:
    return " ".join(f"![image]({image_uri(images.image(uid))})" for uid in uids)


def _evaluation(results: Mapping[str, Any]) -> str:
    columns = ("pass", "accuracy", "95 % interval", "items", "cut off", "unreadable", "mean length")
    rows = [
        [
            mode,
            f"{result['accuracy']:.1%}",
            f"{result['ci95'][0]:.1%} to {result['ci95'][1]:.1%}",
            items_words(result["n"], result["failed_rewards"]),
            _share(result["truncation_rate"]),
            _share(result["parse_failure_rate"]),
            _figure(result["mean_length"]),
        ]
        for mode, result in results.items()
    ]
    split = [
        [row["column"], row["value"], mode, f"{row['accuracy']:.1%}", f"{row['n']}"]
        for mode, result in results.items()
        for row in result["categories"]
    ]
    table = markdown_table(("column", "value", "pass", "accuracy", "items"), split)
    return markdown_table(columns, rows) + (f"\n\n{table}" if split else "")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value}"


def _escaped(text: str) -> str:
    """Escape a text of a model or a data set for Markdown and HTML, and shorten it."""
    short = text.strip() if len(text) <= _TEXT else f"{text[:_TEXT].strip()} ..."
    for character in "\\`*_[]|#":
        short = short.replace(character, f"\\{character}")
    return short.replace("&", "&amp;").replace("<", "&lt;").replace("\n", "<br>")


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of nested mappings; texts with several lines are left out."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif not (isinstance(value, str) and "\n" in value):
            yield f"{prefix}{name}", value
