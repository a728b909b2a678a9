"""The committed results: versus_trl.json for machines, versus_trl.md for people."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.speed.comparison import COMPUTE_PHASES, FIRST, LAST, PHASE_FIRST, PHASE_LAST, REWARD_STEP, Comparison
from benchmarks.speed.side import SideResult

GOAL = 6.0


def machine_facts(module: str, words: Sequence[str]) -> dict[str, Any]:
    """Where, from what and how a benchmark runs; taken before it, so that the load is not its own."""
    return {
        "command": " ".join([f"python -m {module}", *words]),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "cpu": _cpu_name(),
        "cores": sorted(os.sched_getaffinity(0)),
        "load_average_before": os.getloadavg()[0],
    }


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()


def _cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def write_results(comparison: Comparison, facts: Mapping[str, Any], folder: Path) -> None:
    """Write both files and print the Markdown one."""
    folder.mkdir(parents=True, exist_ok=True)
    text = markdown(comparison, facts)
    (folder / "versus_trl.json").write_text(json.dumps(as_json(comparison, facts), indent=1) + "\n")
    (folder / "versus_trl.md").write_text(text)
    print(text)


def as_json(comparison: Comparison, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **facts,
        "steps_compared": [FIRST, LAST],
        "ratios": comparison.ratios,
        "ratio_median": comparison.ratio,
        "reward_step": REWARD_STEP,
        "reward_margin": comparison.reward_margin,
        "reward_standard_error": comparison.reward_standard_error,
        "overhead_share": comparison.overhead_share,
        "phase_steps": [PHASE_FIRST, PHASE_LAST],
        "phase_seconds": comparison.phase_seconds,
        "runs": [_run_json(side) for pair in comparison.pairs for side in pair],
    }


def _run_json(side: SideResult) -> dict[str, Any]:
    """A run without its phases, clocks counted from the start of step 1."""
    record = asdict(side)
    del record["phases"]
    for name in ("step_ends", "cpu_seconds"):
        record[name] = [round(value - record[name][0], 3) for value in record[name]]
    return record | {"samples_per_second": side.samples_per_second(FIRST, LAST)}


def markdown(comparison: Comparison, facts: Mapping[str, Any]) -> str:
    """The page that is committed; every figure in it is computed from the runs."""
    verdict = f"{'at least' if comparison.ratio >= GOAL else 'below'} the aim of {GOAL:g}"
    sections = [
        "# Training speed compared with TRL's GRPOTrainer",
        f"Sightline takes **{comparison.ratio:.2f} times** the samples per second of TRL (median of the pairs below; "
        f"{verdict}). Written by `benchmarks/versus_trl.py`; [docs/benchmarks.md](../../docs/benchmarks.md) says what "
        "is compared.",
        _speed_table(comparison),
        _reward_line(comparison),
        _phase_table(comparison),
        _facts_list(comparison, facts),
    ]
    return "\n\n".join(sections) + "\n"


def _speed_table(comparison: Comparison) -> str:
    lines = [
        f"Steps {FIRST} to {LAST}, 512 samples each. Load is the machine's one-minute average at the end of the run.",
        "",
        "| seed | Sightline, samples/s | TRL, samples/s | ratio | load, Sightline | load, TRL |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (ours, trl), ratio in zip(comparison.pairs, comparison.ratios, strict=True):
        speeds = [f"{side.samples_per_second(FIRST, LAST):.1f}" for side in (ours, trl)]
        loads = [f"{side.load_averages[-1]:.1f}" for side in (ours, trl)]
        lines.append(f"| {' | '.join([str(ours.seed), *speeds, f'{ratio:.2f}', *loads])} |")
    return "\n".join(lines)


def _reward_line(comparison: Comparison) -> str:
    ours, trl = (", ".join(f"{reward:.3f}" for reward in comparison.rewards(side)) for side in (0, 1))
    return (
        f"Mean reward of step {REWARD_STEP}: Sightline {ours} (mean {mean(comparison.rewards(0)):.3f}), TRL {trl} "
        f"(mean {mean(comparison.rewards(1)):.3f}). The difference is {comparison.reward_margin:+.3f} with a standard "
        f"error of {comparison.reward_standard_error:.3f}."
    )


def _phase_table(comparison: Comparison) -> str:
    seconds = comparison.phase_seconds
    share = comparison.overhead_share
    lines = [
        f"Where a step of Sightline goes, mean of steps {PHASE_FIRST} to {PHASE_LAST}: **{100 * share:.1f} %** lies "
        f"outside {', '.join(name.removesuffix('_s').replace('_', ' ') for name in COMPUTE_PHASES)}.",
        "",
        "| phase | ms | share |",
        "| --- | --- | --- |",
    ]
    total = seconds["step_s"]
    for name, value in sorted(seconds.items(), key=lambda item: -item[1]):
        if name.endswith("_s"):
            lines.append(f"| {name.removesuffix('_s').replace('_', ' ')} | {1000 * value:.1f} | {value / total:.1%} |")
    return "\n".join(lines)


def _facts_list(comparison: Comparison, facts: Mapping[str, Any]) -> str:
    packages = {
        name: version for pair in comparison.pairs[:1] for side in pair for name, version in side.packages.items()
    }
    lines = [
        f"- Processor: {facts['cpu']}, {len(facts['cores'])} cores used on both sides",
        f"- Command: `{facts['command']}`",
        f"- Commit: {facts['commit']}{' with uncommitted changes' if facts['uncommitted_changes'] else ''}",
        f"- Load before the start: {facts['load_average_before']:.1f}",
        f"- Packages: {', '.join(f'{name} {version}' for name, version in sorted(packages.items()))}",
    ]
    return "\n".join(lines)
